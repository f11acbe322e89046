"""python threads.py COUNT SECONDS: mixed calls from so many threads, while another changes the number of ours."""

import sys
import threading
import time

from mixed import answers, equal, make_calls, pick

import gelu_fast as gf

count, seconds = int(sys.argv[1]), float(sys.argv[2])
calls = make_calls()
end = time.monotonic() + seconds
wrong, done = [], [0] * count


def work(number):
    try:
        for call, want in pick(calls, number):
            if not all(map(equal, answers(call()), want)):
                wrong.append(number)
            done[number] += 1
            if time.monotonic() > end:
                return
    except BaseException as error:
        wrong.append(error)


def disturb():
    while time.monotonic() < end:
        for n in (1, 2, 7, 64):
            gf.set_num_threads(n)
            time.sleep(0.001)


pool = [threading.Thread(target=work, args=(k,)) for k in range(count)] + [threading.Thread(target=disturb)]
for thread in pool:
    thread.start()
for thread in pool:
    thread.join()
assert not wrong, wrong[:3]
assert all(done), "a thread got nothing done"
print("ok", sum(done), "calls")
