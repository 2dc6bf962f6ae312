"""What storing, growing and protecting a prefix costs, and a trace of real requests."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .contenders import Ours
from .hits import RUST, filled
from .report import Row, at_least, compared
from .timing import Job, rounds
from .workloads import Chat, Request, SharedPrompt, Slots, mooncake

CALLS = 64


def pairs(tree: Any, requests: list[Request]) -> list[Any]:
    """Return requests in a tree's own form."""
    return [(tree.key(one.tokens), tree.values(one.slots)) for one in requests]


class Grown:
    """A tree and who comes next; what was inserted stays, so it grows by a little every round."""

    def __init__(self, kind: Any, page: int, leaves: int, spare: int) -> None:
        self.work = SharedPrompt()
        requests = (self.work.request(number) for number in range(leaves))
        self.tree = filled(kind, page, requests, (leaves + spare) * self.work.own + 4096)
        self.next = leaves

    def new(self) -> Job:
        fresh = [self.work.request(self.next + at) for at in range(CALLS)]
        self.next += CALLS
        return self.tree.insert, pairs(self.tree, fresh)

    def again(self) -> Job:
        known = []
        for at in range(CALLS):
            tokens = self.work.tokens_of(at)
            known.append(Request(tokens, self.work.slots.take(len(tokens))))
        return self.tree.insert, pairs(self.tree, known)


def measure(options: Any) -> list[Row]:
    """Insert of what is new, of what is there, and of a conversation's next turn."""
    rows = []
    for leaves in options.leaves:
        if leaves > 100_000:
            continue
        for page in options.pages:
            kinds = options.fit(page, leaves)
            spare = CALLS * (options.rounds + 2)
            grown = {kind.name: Grown(kind, page, leaves, spare) for kind in kinds}
            shape = {"page": page, "leaves": leaves}
            work = {**shape, "workload": "shared prompt, 2,208"}
            for verb in ("new", "again"):
                jobs = {name: getattr(one, verb) for name, one in grown.items()}
                row = compared(Row(f"insert {verb}", **work), rounds(jobs, options.rounds))
                rows.append(at_least(row, RUST, 2))
            rows.append(append_row(options, kinds, shape))
    return rows


class Talk:
    """Conversations that all get their next turn in every round."""

    def __init__(self, kind: Any, page: int, leaves: int, num_rounds: int) -> None:
        self.work = Chat(turns=num_rounds + 2)
        self.whole = [self.work.whole(number) for number in range(leaves)]
        size = leaves * self.work.turn * self.work.turns + 4096
        self.turn = 1
        first = self.work.system + self.work.turn
        requests = (Request(one.tokens[:first], one.slots[:first]) for one in self.whole)
        self.tree = filled(kind, page, requests, size)

    def job(self) -> Job:
        self.turn += 1
        end = self.work.system + self.turn * self.work.turn
        chosen = self.whole[:CALLS]
        return self.tree.insert, pairs(
            self.tree, [Request(one.tokens[:end], one.slots[:end]) for one in chosen]
        )


def append_row(options: Any, kinds: list[Any], shape: dict[str, int]) -> Row:
    leaves = min(shape["leaves"], 10_000)
    talks = {kind.name: Talk(kind, shape["page"], leaves, options.rounds) for kind in kinds}
    jobs = {name: talk.job for name, talk in talks.items()}
    row = Row("append a turn", "chat, +96", shape["page"], leaves)
    return at_least(compared(row, rounds(jobs, options.rounds)), RUST, 2)


def measure_lock(options: Any) -> list[Row]:
    """Lock and unlock of the end of a conversation, eight edges deep."""
    rows = []
    for leaves in options.leaves:
        if leaves > 100_000:
            continue
        for page in options.pages:
            work = Chat(forked=True)
            number = leaves // work.turns
            size = number * (work.turn + 16) * work.turns + 4096
            jobs = {}
            for kind in options.fit(page, leaves):
                if not hasattr(kind, "lock_unlock"):
                    continue
                steps = (step for at in range(number) for step in work.steps(at))
                tree = filled(kind, page, steps, size)
                ends = [
                    tree.place(tree.key(work.whole(at * number // 256).tokens)) for at in range(256)
                ]
                jobs[kind.name] = lambda tree=tree, ends=ends: (tree.lock_unlock, ends)
            row = Row("lock + unlock", "chat, 8 edges", page, leaves)
            times = rounds(jobs, options.rounds)
            rows.append(at_least(compared(row, times), "SGLang C++", 1))
    return rows


def measure_trace(options: Any) -> list[Row]:
    """Replay a trace: look up, make room in a cache of a million tokens, store."""
    if not options.trace.exists():
        print(f"no trace at {options.trace}: --trace names it", file=sys.stderr)
        return []
    prompts = mooncake(options.trace, 20_000_000 if options.full else 4_000_000)
    rows = []
    for page in options.pages:
        # The others' pools and indexes are not driven by evictions of so many tokens.
        kinds = [one for one in options.fit(page, 1) if one in (Ours,) or "SGLang" in one.name]
        jobs = {
            kind.name: lambda kind=kind, page=page: replay(kind, page, prompts) for kind in kinds
        }
        row = Row("trace, a request", f"mooncake, {len(prompts)} requests", page, 0)
        rows.append(at_least(compared(row, rounds(jobs, 3)), RUST, 2))
    return rows


def replay(kind: Any, page: int, prompts: list[np.ndarray]) -> Job:
    """Return a fresh tree and a step for each request."""
    tree, slots, capacity = kind(page, 1 << 20), Slots(), 1 << 20
    values = tree.values(slots.take(max(len(prompt) for prompt in prompts)))

    def step(key: Any) -> None:
        found = tree.match(key)
        needed = tree.cached() + len(key) - capacity
        if needed > 0:
            tree.evict(needed)
        tree.insert((key, values[: len(key)]))
        del found

    return step, [tree.key(prompt) for prompt in prompts if len(prompt) < capacity]
