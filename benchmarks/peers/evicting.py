"""What making room costs, in small and in large, usually and at worst."""

from __future__ import annotations

import gc
import statistics
from typing import Any

import numpy as np

from .contenders import Ours
from .hits import RUST, filled
from .report import Row, at_least, at_most, compared
from .timing import Job, cpu_us, rounds
from .workloads import Chat, SharedPrompt

# Short requests, so that the same shape goes up to a million leaves.
SHARED, OWN = 512, 64


class Full:
    """A tree that is filled up again after every round of evictions."""

    def __init__(self, kind: Any, page: int, leaves: int) -> None:
        self.work = SharedPrompt(shared=SHARED, own=OWN)
        self.size = SHARED + leaves * OWN
        requests = (self.work.request(number) for number in range(leaves))
        self.tree = filled(kind, page, requests, self.size)
        self.next = leaves

    def refill(self) -> None:
        while self.tree.cached() < self.size:
            request = self.work.request(self.next)
            self.tree.insert((self.tree.key(request.tokens), self.tree.values(request.slots)))
            self.next += 1


def measure(options: Any) -> list[Row]:
    """Evict what one request needs, from trees of all sizes."""
    rows: list[Row] = []
    flat: dict[tuple[int, int], dict[int, float]] = {}
    for leaves in options.leaves:
        for page in options.pages:
            kinds = [one for one in options.fit(page, leaves) if one.evicts]
            full = {kind.name: Full(kind, page, leaves) for kind in kinds}
            # Few calls where a peer takes milliseconds for one.
            calls = 8 if leaves >= 100_000 else 32
            for num_tokens in (64, 256):
                jobs: dict[str, Any] = {}
                for name, one in full.items():
                    inputs = [num_tokens] * calls
                    jobs[name] = lambda one=one, inputs=inputs: (one.tree.evict, inputs)
                times = rounds(
                    jobs, options.rounds, after=lambda name, full=full: full[name].refill()
                )
                row = Row(f"evict {num_tokens}", "short requests", page, leaves)
                compared(row, times)
                if leaves == 100_000:
                    at_least(row, RUST, 100)
                rows.append(row)
                flat.setdefault((page, num_tokens), {})[leaves] = row.figures[Ours.name]
    for (page, num_tokens), figures in flat.items():
        most = max(figures)
        if most > min(figures):
            row = Row(f"evict {num_tokens}, growth", "short requests", page, most)
            row.figures = {Ours.name: figures[most]}
            what = f"that of {min(figures):,} leaves"
            rows.append(at_most(row, what, figures[most] / figures[min(figures)], 2))
    return rows


def measure_tenth(options: Any) -> list[Row]:
    """Evict a tenth of a tree of conversations in one call."""
    rows = []
    for leaves in options.leaves:
        if leaves > 100_000:
            continue
        for page in options.pages:
            jobs = {}
            for kind in options.fit(page, leaves):
                if not kind.evicts or kind.name == "vLLM":
                    continue  # the pool of vLLM evicts when blocks are handed out, not at once
                work = Chat()
                steps = (step for number in range(leaves) for step in work.steps(number))
                tree = filled(kind, page, steps, 0)

                def job(tree: Any = tree) -> Job:
                    return tree.evict, [tree.cached() // 10]

                jobs[kind.name] = job
            row = compared(Row("evict a tenth", "chat", page, leaves), rounds(jobs, 3))
            rows.append(at_least(row, RUST, 20) if leaves == 100_000 else row)
    return rows


def measure_worst(options: Any) -> list[Row]:
    """The worst single call after all leaves were touched in random order; processor time."""
    rows = []
    for leaves in options.leaves:
        kinds = [one for one in options.fit(1, leaves) if one is Ours or one.name == RUST]
        row = Row("worst evict 64", "all touched", 1, leaves)
        for kind in kinds:
            one = Full(kind, 1, leaves)
            calls = (
                min(2_000, leaves // 2) if kind is Ours else min(leaves // 2, 2_000_000 // leaves)
            )
            for number in np.random.default_rng(3).permutation(leaves):
                one.tree.touch(one.tree.key(one.work.tokens_of(int(number))))
            gc.collect()
            gc.disable()
            spent = [cpu_us(lambda one=one: one.tree.evict(64)) for _ in range(calls)]
            gc.enable()
            row.figures[kind.name] = max(spent)
            if kind is Ours:
                median = statistics.median(spent)
                row.figures["its median"] = median
                at_most(row, "its median", max(spent) / median, 20)
            else:
                row.ratios[kind.name] = max(spent) / row.figures[Ours.name]
        rows.append(row)
    return rows
