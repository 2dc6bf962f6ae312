"""Threads beside each other, and memory: what shows only after a while."""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from .contenders import CONTENDERS, Ours
from .hits import RUST, filled
from .report import Row, at_most
from .workloads import Request, SharedPrompt, Slots, tokens

LONG = 131_072


class Running:
    """Threads that call something until they are told to stop, and count."""

    def __init__(self, calls: list[Any]) -> None:
        self.stop = False
        self.counts = [0] * len(calls)
        self.threads = [threading.Thread(target=self._loop, args=pair) for pair in enumerate(calls)]

    def _loop(self, at: int, call: Any) -> None:
        count = 0
        while not self.stop:
            call()
            count += 1
        self.counts[at] = count

    def for_seconds(self, seconds: float) -> list[float]:
        """Return calls per second of each thread."""
        for thread in self.threads:
            thread.start()
        start = time.perf_counter()
        time.sleep(seconds)
        self.stop = True
        for thread in self.threads:
            thread.join()
        spent = time.perf_counter() - start
        return [count / spent for count in self.counts]


def measure_threads(options: Any) -> list[Row]:
    """Long matches by two threads on one tree and on two; a reader beside a writer.

    Shares of what two trees reach: 1 is no loss. The same is measured without Python in
    rust/radix-rs/benches/peers, which counts.
    """
    rows = []
    for kind in [one for one in options.fit(1, 1000) if one.name in (Ours.name, RUST)]:
        one, other = Read(kind), Read(kind)

        def together(calls: list[Any]) -> float:
            return sum(Running(calls).for_seconds(0.4))

        shares = []
        for _ in range(options.rounds):
            apart = together([one.read, other.read])
            shares.append(together([one.read, one.read]) / apart)
        row = Row("two readers, one tree", f"{LONG:,} tokens, {kind.name}", 1, 1, unit="of two")
        rows.append(share(row, shares, 0.95, kind))
        beside = []
        for _ in range(options.rounds):
            alone = Running([one.read, one.writer(other)]).for_seconds(0.4)[0]
            beside.append(Running([one.read, one.writer(one)]).for_seconds(0.4)[0] / alone)
        row = Row("a reader, writer", f"same tree or other, {kind.name}", 1, 1, unit="of other")
        rows.append(share(row, beside, 0.9, kind))
    return rows


class Read:
    """A tree with one long prompt that is protected, so that a writer cannot evict it."""

    def __init__(self, kind: Any) -> None:
        prompt = Request(tokens(5, LONG), np.arange(LONG, dtype=np.int32))
        self.tree = filled(kind, 1, [prompt], 0)
        self.key = self.tree.key(prompt.tokens)
        self.kept = self.tree.keep(self.key)
        self.number, self.slots = 0, Slots()
        self.slots.next = LONG

    def read(self) -> None:
        self.tree.match(self.key)

    def writer(self, target: Read) -> Any:
        """Return a call that stores 256 tokens in ``target`` and makes the same room again."""
        work, tree = SharedPrompt(shared=256, own=256, seed=99), target.tree

        def write() -> None:
            target.number += 1
            own = work.tokens_of(target.number)
            tree.insert((tree.key(own), tree.values(target.slots.take(len(own)))))
            tree.evict(256)

        return write


def share(row: Row, shares: list[float], least: float, kind: Any) -> Row:
    """Note a share that must not be under ``least``, for ours."""
    value = statistics.median(shares)
    row.ratios = {"of that": value}
    if kind is Ours:
        row.figures = {Ours.name: value}
        row.required, row.met = f">= {least:g} of that", value >= least
    return row


def measure_memory(options: Any) -> list[Row]:
    """Resident memory per cached token, each contender in a process of its own."""
    rows = []
    counts = [100_000] if options.full else [max(min(options.leaves), 10_000)]
    for leaves in counts:
        row = Row("memory", "shared prompt, 208 own", 1, leaves, unit="B/token")
        for kind in CONTENDERS:
            if kind not in options.fit(kind.pages[0], leaves) or not hasattr(kind, "cached"):
                continue
            command = [sys.executable, str(Path(sys.argv[0]).resolve()), "--memory-of", kind.name]
            command += ["--leaves", str(leaves)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"memory of {kind.name}: {done.stderr.splitlines()[-1]}", file=sys.stderr)
                continue
            row.figures[kind.name] = float(done.stdout.splitlines()[-1])
        ours = row.figures[Ours.name]
        row.ratios = {name: value / ours for name, value in row.figures.items()}
        row.ratios.pop(Ours.name)
        rows.append(at_most(row, "bytes per token", ours, 10))
    return rows


def resident() -> int:
    """Return resident bytes after freed memory went back to the system."""
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_child(name: str, leaves: int) -> None:
    """Print how much memory a token takes in a tree of that kind."""
    (kind,) = [one for one in CONTENDERS if one.name == name]
    work = SharedPrompt()
    page, num_tokens = kind.pages[0], leaves * work.own + 4096
    # Whatever is loaded or set up at the first use is not the tree's.
    filled(kind, page, (work.request(number) for number in range(100)), num_tokens)
    before = resident()
    work = SharedPrompt()
    tree = filled(kind, page, (work.request(number) for number in range(leaves)), num_tokens)
    print((resident() - before) / tree.cached())
