"""score, and FeedForward, over dask arrays: lazily, and on a real cluster of which a worker is killed."""

import os
import signal
import threading
import time

import cluster_parts
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import gelu_fast as gf
from gelu_fast.export import export_ffn
from gelu_fast.export.reference import expected
from gelu_fast.export.score import score
from gelu_fast.export.sources import read_source

da = pytest.importorskip("dask.array", reason="needs pip install 'gelu-fast[dask]'")
distributed = pytest.importorskip("distributed", reason="needs pip install 'gelu-fast[dask]'")

WIDTH, HIDDEN, OUT = 24, 50, 10


def tensors(dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((WIDTH, HIDDEN), (HIDDEN,), (HIDDEN, OUT), (OUT,))
    return tuple((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(dtype) for shape in shapes)


def rows(count, dtype=np.float32, shape=()):
    return np.random.default_rng(1).standard_normal((count, *shape, WIDTH)).astype(dtype)


def truth(x, formula="none"):
    stack = read_source(tensors())
    flat = x.reshape(-1, WIDTH)
    found = expected(stack, flat, formula)
    return found.y[formula].reshape(*x.shape[:-1], OUT), found.allowed.reshape(*x.shape[:-1], 1)


def assert_right(y, x, formula="none"):
    """Within what float32 arithmetic may be off from the float64 oracle; the other formula is further."""
    want, allowed = truth(x, formula)
    assert y.shape == want.shape
    assert y.dtype == np.float32
    assert (np.abs(y - want) <= allowed).all()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    goal = tmp_path_factory.mktemp("score") / "ffn.onnx"
    export_ffn(tensors(), goal)
    return goal


@pytest.fixture(scope="module")
def client():
    """Two worker processes of two threads."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as found,
    ):
        yield found


@pytest.mark.parametrize("batch", [None, 1, 7, 1000])
def test_score_is_right_and_lazy(path, batch):
    x = rows(100)
    asked = []

    def look(part):
        asked.append(len(part))
        return part

    lazy = da.from_array(x, chunks=(30, 7)).map_blocks(look, dtype=x.dtype, meta=x[:0])
    y = score(path, lazy, batch=batch)
    assert not asked
    assert isinstance(y, da.Array)
    assert y.chunks == ((30, 30, 30, 10), (OUT,))
    assert y.dtype == np.float32
    assert type(y._meta) is np.ndarray
    assert y._meta.dtype == np.float32
    assert_right(y.compute(scheduler="threads"), x)
    assert sum(asked) == 100 * 4  # four chunks of columns


@pytest.mark.parametrize("threads", [1, 2])
def test_score_of_three_axes_chunks_of_no_rows_and_unknown_lengths(tmp_path, threads):
    export_ffn(tensors(), tmp_path / "m.onnx", approximate="tanh", dims=("batch", "seq"))
    x = rows(9, shape=(4,))
    lazy = da.from_array(x, chunks=((0, 5, 0, 4), 2, -1))
    y = score(tmp_path / "m.onnx", lazy, threads=threads)
    assert y.chunks == ((0, 5, 0, 4), (4,), (OUT,))
    assert_right(y.compute(scheduler="threads"), x, "tanh")
    chosen = lazy[lazy[:, 0, 0] > 0]  # how many, only the data knows
    assert_right(score(tmp_path / "m.onnx", chosen).compute(scheduler="threads"), x[x[:, 0, 0] > 0], "tanh")


def test_score_with_weights_beside_the_model_and_integers(tmp_path):
    export_ffn(tensors(), tmp_path / "m.onnx", external_data=True)
    x = np.arange(-12, 12, dtype=np.int16)[None] * np.ones((3, 1), np.int16)
    assert_right(score(tmp_path / "m.onnx", da.from_array(x)).compute(scheduler="threads"), x.astype(np.float32))


def one_node(path, operator, taken, given, kind=TensorProto.FLOAT, opset=17, **attributes):
    """A model of one operator; `taken` and `given` are shapes."""
    graph = helper.make_graph(
        [helper.make_node(operator, ["a"], ["b"], **attributes)], "g",
        [helper.make_tensor_value_info("a", kind, taken)], [helper.make_tensor_value_info("b", kind, given)],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def test_any_model_of_rows(tmp_path):
    x = rows(8)
    lazy = da.from_array(x, chunks=(3, -1))
    relu = one_node(tmp_path / "relu.onnx", "Relu", ["n", "k"], ["n", "k"])
    np.testing.assert_array_equal(score(relu, lazy).compute(scheduler="threads"), np.maximum(x, 0))
    most = one_node(tmp_path / "most.onnx", "ReduceMax", ["n", "k"], ["n"], axes=[1], keepdims=0)
    np.testing.assert_array_equal(score(most, lazy).compute(scheduler="threads"), x.max(1))
    more = one_node(tmp_path / "more.onnx", "Unsqueeze", ["n", "k"], ["n", 1, "k"], opset=12, axes=[1])
    np.testing.assert_array_equal(score(more, lazy).compute(scheduler="threads"), x[:, None])


def test_refusals(path, tmp_path):
    x = da.from_array(rows(8), chunks=(4, -1))
    with pytest.raises(TypeError, match=r"x: expected a dask array, got ndarray; dask\.array.from_array"):
        score(path, rows(8))
    with pytest.raises(TypeError, match=r"x: expected float32 or what converts to it safely, got float64"):
        score(path, x.astype(np.float64))
    with pytest.raises(ValueError, match=r"x: 'x' has shape \['batch', 24\], got an array of shape \(8, 23\)"):
        score(path, x[:, 1:])
    with pytest.raises(ValueError, match=r"got an array of shape \(24,\)"):
        score(path, x[0])
    with pytest.raises(ValueError, match="batch: expected at least 1, got 0"):
        score(path, x, batch=0)
    with pytest.raises(TypeError, match=r"threads: expected a whole number, got 1\.5"):
        score(path, x, threads=1.5)
    with pytest.raises(TypeError, match="providers: expected None or names"):
        score(path, x, providers="CPUExecutionProvider")
    with pytest.raises(FileNotFoundError, match="no file at"):
        score(tmp_path / "none.onnx", x)
    with pytest.raises(TypeError, match=r"path: expected the name of an \.onnx file, got ModelProto"):
        score(onnx.load(path), x)
    fixed = one_node(tmp_path / "fixed.onnx", "Relu", [8, WIDTH], [8, WIDTH])
    with pytest.raises(ValueError, match="'a': expected a dynamic first axis, the rows"):
        score(fixed, x)
    unnamed = one_node(tmp_path / "unnamed.onnx", "Relu", ["n", WIDTH], ["n", None])
    with pytest.raises(ValueError, match="'b': axis 1 is neither fixed nor named"):
        score(unnamed, x)
    half = one_node(tmp_path / "half.onnx", "Relu", ["n", WIDTH], ["n", WIDTH], TensorProto.BFLOAT16)
    with pytest.raises(ValueError, match="onnxruntime takes no bfloat16 from NumPy"):
        score(half, x)


def test_what_a_worker_finds_wrong_is_raised_when_computing(path, tmp_path):
    x = da.from_array(rows(8), chunks=(4, -1))
    with pytest.raises(ValueError, match=r"providers: this worker's onnxruntime has no NoSuchProvider; it has .*CPU"):
        score(path, x, providers=["NoSuchProvider"]).compute(scheduler="threads")
    goal = tmp_path / "changing.onnx"
    export_ffn(tensors(), goal)
    y = score(goal, x)
    export_ffn(tensors(seed=5), goal, overwrite=True)
    with pytest.raises(ValueError, match="the file has changed, or another stands there"):
        y.compute(scheduler="threads")
    goal.unlink()
    with pytest.raises(FileNotFoundError, match="this worker has no file"):
        y.compute(scheduler="threads")
    flat = one_node(tmp_path / "flat.onnx", "ReduceMax", ["n", "k"], ["n", "k"], axes=[1], keepdims=0)
    with pytest.raises(ValueError, match=r"expected an output of shape \(4, 24\), got \(4,\)"):
        score(flat, x).compute(scheduler="threads")


@pytest.fixture
def opened(monkeypatch):
    """The paths of which this process has made a session."""
    paths = []
    made = onnxruntime.InferenceSession

    class Counted(made):
        def __init__(self, path, *arguments, **options):
            paths.append(path)
            time.sleep(0.05)  # so that threads that come at once would all find none
            super().__init__(path, *arguments, **options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Counted)
    return paths


def test_one_session_for_all_threads(tmp_path, opened):
    export_ffn(tensors(), tmp_path / "m.onnx", verify=False)
    x = da.from_array(rows(64), chunks=(1, -1))
    for _ in range(2):
        assert_right(score(tmp_path / "m.onnx", x).compute(scheduler="threads", num_workers=8), rows(64))
    assert opened == [str(tmp_path / "m.onnx")]
    score(tmp_path / "m.onnx", x, threads=2).compute(scheduler="threads")
    export_ffn(tensors(seed=5), tmp_path / "m.onnx", verify=False, overwrite=True)
    score(tmp_path / "m.onnx", x).compute(scheduler="threads")
    assert len(opened) == 3  # other threads, another hash


def test_a_process_keeps_four_sessions(tmp_path, opened):
    x = da.from_array(rows(4), chunks=(4, -1))
    paths = [tmp_path / f"{number}.onnx" for number in range(5)]
    for number, goal in enumerate(paths):
        export_ffn(tensors(seed=number), goal, verify=False)
        score(goal, x).compute(scheduler="threads")
    score(paths[4], x).compute(scheduler="threads")
    assert len(opened) == 5
    score(paths[0], x).compute(scheduler="threads")
    assert len(opened) == 6


@pytest.mark.parametrize("wrong", [False, True])
def test_progress_in_this_process(path, tmp_path, capfd, wrong):
    x = da.from_array(rows(20), chunks=(2, -1))
    if wrong:
        flat = one_node(tmp_path / "flat.onnx", "ReduceMax", ["n", "k"], ["n", "k"], axes=[1], keepdims=0)
        with pytest.raises(ValueError, match="expected an output of shape"):
            score(flat, x, progress=True)
        return
    y = score(path, x, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "10/10" in err
    assert all(isinstance(part, np.ndarray) for part in dict(y.dask).values())  # computed
    assert_right(y.compute(), rows(20))


def test_score_on_a_cluster_with_progress(client, path, capfd):
    x = da.from_array(rows(400), chunks=(10, -1))
    with client.as_current():
        y = score(path, x, batch=4, progress=True)
        assert "40/40" in capfd.readouterr().err
        assert all(future.status == "finished" for future in distributed.futures_of(y))
        assert_right(y.compute(), rows(400))
    kept = client.run(lambda: len(__import__("gelu_fast.export.score", fromlist=["_"])._sessions))
    assert set(kept.values()) == {1}
    assert len(kept) == 2


def test_score_on_a_cluster_raises_what_a_worker_found(client, tmp_path):
    x = da.from_array(rows(40), chunks=(10, -1))
    flat = one_node(tmp_path / "flat.onnx", "ReduceMax", ["n", "k"], ["n", "k"], axes=[1], keepdims=0)
    with client.as_current():
        y = score(flat, x)
        with pytest.raises(ValueError, match=r"expected an output of shape \(10, 24\), got \(10,\)"):
            y.compute()
        with pytest.raises(ValueError, match=r"expected an output of shape \(10, 24\), got \(10,\)"):
            score(flat, x, progress=True)


@pytest.mark.timeout(120)
def test_an_interrupt_stops_the_cluster(client, path):
    slow = da.from_array(rows(800), chunks=(1, -1)).map_blocks(cluster_parts.slowly, 0.5, meta=rows(0))  # 100 s
    timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
    with client.as_current():
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            score(path, slow, progress=True)
        deadline = time.monotonic() + 20
        while any(client.processing().values()):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def kill_one_when(client, futures, done):
    """Kill a worker process once `done` futures are finished; its process id."""
    while sum(future.status == "finished" for future in futures) < done:
        time.sleep(0.02)
    victim = sorted(client.run(os.getpid).values())[0]
    os.kill(victim, signal.SIGKILL)
    return victim


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["score", "FeedForward"])
def test_a_killed_worker_loses_nothing(client, path, what):
    count = 240
    x = da.from_array(rows(count), chunks=(4, -1))
    with client.as_current():
        late = x.map_blocks(cluster_parts.slowly, 0.1, dtype=x.dtype, meta=rows(0))
        lazy = score(path, late) if what == "score" else gf.FeedForward(*tensors())(late)
        y = lazy.persist()
        futures = distributed.futures_of(y)
        assert len(futures) == count / 4
        victim = kill_one_when(client, futures, 12)
        assert sum(future.status == "finished" for future in futures) < len(futures)  # in the middle
        assert_right(y.compute(), rows(count))
        client.wait_for_workers(2, timeout=60)
        assert victim not in client.run(os.getpid).values()
        assert_right(lazy.compute(), rows(count))  # the new worker does its part


@pytest.mark.parametrize("formula", ["none", "tanh"])
def test_feed_forward_is_right_and_lazy(formula):
    x = rows(50, shape=(3,))
    ff = gf.FeedForward(*tensors(), formula)
    y = ff(da.from_array(x, chunks=(20, 2, 5)))
    assert isinstance(y, da.Array)
    assert y.chunks == ((20, 20, 10), (2, 1), (OUT,))
    assert y.dtype == np.float32
    assert (type(y._meta), y._meta.dtype) == (np.ndarray, np.float32)
    got = y.compute(scheduler="threads")
    assert_right(got, x, formula)
    np.testing.assert_allclose(got, ff(x), rtol=0, atol=2e-6)  # BLAS sums other numbers of rows in another order
    # Integers and float16 convert safely, chunk by chunk.
    whole = ff(da.from_array(np.eye(WIDTH, dtype=np.int16), chunks=(5, 5)))
    assert whole.dtype == np.float32
    assert_right(whole.compute(scheduler="threads"), np.eye(WIDTH, dtype=np.float32), formula)


def test_feed_forward_of_one_row_gated_and_float64():
    w1, b1, w2, b2 = tensors(np.float64)
    gated = gf.FeedForward(w1, b1, w2[: HIDDEN // 2], b2, "quick", gated=True)
    x = rows(6, np.float64)
    np.testing.assert_allclose(gated(da.from_array(x, chunks=2)).compute(scheduler="threads"), gated(x), atol=1e-14)
    one = gated(da.from_array(x[0], chunks=10))
    assert one.chunks == ((OUT,),)
    np.testing.assert_allclose(one.compute(scheduler="threads"), gated(x[0]), atol=1e-14)


def test_feed_forward_refusals():
    ff = gf.FeedForward(*tensors())
    x = da.from_array(rows(6), chunks=2)
    with pytest.raises(TypeError, match="x: expected float32 or what converts to it safely, got float64"):
        ff(x.astype(np.float64))
    with pytest.raises(ValueError, match="x: expected a last axis of 24"):
        ff(x[:, 1:])
    with pytest.raises(TypeError, match="out: expected None, since x is a dask array"):
        ff(x, out=np.empty((6, OUT), np.float32))
    with pytest.raises(TypeError, match="dy: expected a NumPy array, got a dask array"):
        ff.backward(ff(x), x)


def test_weights_go_to_each_worker_once(client):
    block = cluster_parts.Counted(*tensors())
    x = da.from_array(rows(400), chunks=(4, -1)).map_blocks(cluster_parts.slowly, 0.01, meta=rows(0))
    with client.as_current():
        assert_right(block(x).compute(), rows(400))
    counts = client.run(cluster_parts.count)
    print("unpickled by each worker:", list(counts.values()))
    assert max(counts.values()) == 1  # for 100 tasks
