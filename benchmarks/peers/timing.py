"""Fair times on a machine that others use too: contenders take turns, round by round."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

# What a contender does, and what it is given, one call after the other.
Job = tuple[Callable[[Any], object], Sequence[Any]]


def per_call_us(run: Callable[[Any], object], inputs: Sequence[Any]) -> float:
    """Return microseconds per call, the loop's own cost (some 20 ns) included."""
    start = time.perf_counter_ns()
    for item in inputs:
        run(item)
    return (time.perf_counter_ns() - start) / len(inputs) / 1e3


def rounds(
    jobs: dict[str, Callable[[], Job]],
    count: int,
    after: Callable[[str], None] | None = None,
) -> dict[str, list[float]]:
    """Time all contenders ``count`` times, each round in another order; the first one warms up.

    ``jobs`` make a contender's inputs afresh for every round; ``after`` restores what the calls
    changed. Neither is timed.
    """
    times: dict[str, list[float]] = {name: [] for name in jobs}
    names = list(jobs)
    gc.collect()
    gc.disable()
    try:
        for number in range(count + 1):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                run, inputs = jobs[name]()
                spent = per_call_us(run, inputs)
                if number:
                    times[name].append(spent)
                if after:
                    after(name)
    finally:
        gc.enable()
    return times


def ratio(peer: Sequence[float], ours: Sequence[float]) -> float:
    """Return how many times longer the peer took: the median over rounds."""
    return statistics.median(a / b for a, b in zip(peer, ours, strict=True))


def cpu_us(run: Callable[[], object]) -> float:
    """Return the processor time of one call: being preempted does not count."""
    start = time.thread_time_ns()
    run()
    return (time.thread_time_ns() - start) / 1e3
