"""Turns (A B A B …), medians and spread."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .contenders import Contender


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Parameters
    ----------
    rounds : int
        Turns of each contender.
    turn : float
        Least seconds of one turn; a short call is repeated to fill it.
    slow : float
        Seconds that one contender may take in all; a slow one gets fewer rounds, but at least `least`.
    least : int
    rest : float
        Seconds of sleep before each turn. Every library has its own pool, whose threads spin for a while after a
        call: timed right after one another on two threads they fight over the cores, and torch then took 8 ms for what
        it does alone in 0.02.
    """

    rounds: int = 7
    turn: float = 2e-3
    slow: float = 0.6
    least: int = 3
    rest: float = 0.01


SHORT = Effort()
FULL = Effort(rounds=15, turn=5e-3, slow=4.0, least=5)
# Past this, what the caches hold is of no account, and a warming call before each turn only costs time.
_NO_WARMING = 0.02


@dataclass(frozen=True)
class Timing:
    """Nanoseconds per call of one contender.

    Attributes
    ----------
    median : float
    spread : float
        Interquartile range over the median.
    samples : tuple of float
        One per round.
    calls : int
        Calls per round, of which a sample is the mean.
    """

    median: float
    spread: float
    samples: tuple[float, ...]
    calls: int


def compare(contenders: Sequence[Contender], effort: Effort, threads: int = 1) -> list[Timing]:
    """Time all in alternation.

    Parameters
    ----------
    contenders : sequence of Contender
        Each has been called at least once.
    effort : Effort
    threads : int
        On one thread no pool spins, and the rests are cut to a fifth.

    Returns
    -------
    list of Timing
        In the same order.
    """
    rest = effort.rest if threads > 1 else effort.rest / 5
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        costs = [_estimate(c) for c in contenders]
        calls = [max(1, round(effort.turn / cost)) for cost in costs]
        rounds = [
            min(effort.rounds, max(effort.least, int(effort.slow / max(cost, effort.turn)))) for cost in costs
        ]
        samples: list[list[float]] = [[] for _ in contenders]
        for turn in range(max(rounds, default=0)):
            for i, contender in enumerate(contenders):
                if turn < rounds[i]:
                    time.sleep(rest)
                    with contender.scope():
                        if costs[i] < _NO_WARMING:
                            _turn(contender.call, 1 + calls[i] // 4)
                        samples[i].append(_turn(contender.call, calls[i]))
    finally:
        if collecting:
            gc.enable()
    return [summary(s, n) for s, n in zip(samples, calls, strict=True)]


def summary(samples: Sequence[float], calls: int) -> Timing:
    """Median and spread of some samples in nanoseconds."""
    median = statistics.median(samples)
    quartiles = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [median] * 3
    return Timing(median, (quartiles[2] - quartiles[0]) / median, tuple(samples), calls)


def _estimate(contender: Contender) -> float:
    """Seconds per call, roughly: the least of up to three turns that grow."""
    with contender.scope():
        best = _turn(contender.call, 1) / 1e9
        for n in (3, 30):
            if best < _NO_WARMING / n:
                best = min(best, _turn(contender.call, n) / 1e9)
    return max(best, 1e-8)


def _turn(call: Callable[[], object], calls: int) -> float:
    """Nanoseconds per call. The loop itself costs about 15."""
    loop = itertools.repeat(None, calls)
    start = time.perf_counter_ns()
    for _ in loop:
        call()
    return (time.perf_counter_ns() - start) / calls
