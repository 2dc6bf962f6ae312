"""What finding a cached prefix costs."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from .contenders import Ours
from .floor import Floor
from .report import Row, at_least, at_most, compared
from .timing import Job, rounds
from .workloads import Chat, FewShot, Request, SharedPrompt, long_prompt

RUST = "SGLang Rust"
# Hits in a row: those that stay in the processor's cache, and those that walk over more than 32 MB.
HOT, COLD_BYTES = 4, 48 << 20


def filled(kind: Any, page: int, requests: Any, num_tokens: int) -> Any:
    """Return a tree of that kind with the requests in it."""
    tree = kind(page, num_tokens)
    for request in requests:
        tree.insert((tree.key(request.tokens), tree.values(request.slots)))
    return tree


def compare(
    trees: dict[str, Any],
    prompts: list[np.ndarray],
    calls: int,
    count: int,
    verb: str,
) -> dict[str, list[float]]:
    """Time one verb of every tree on the same prompts, each in that tree's own form."""
    jobs = {}
    for name, tree in trees.items():
        keys = [tree.key(prompt) for prompt in prompts]
        run = getattr(tree, verb)
        for key, prompt in zip(keys[:2], prompts, strict=False):
            assert tree.length(key) == len(prompt), f"{name} does not find what was stored"
        inputs = [keys[at % len(keys)] for at in range(max(calls, len(keys)))]
        jobs[name] = lambda run=run, inputs=inputs: (run, inputs)
    return rounds(jobs, count)


def hit_rows(
    trees: dict[str, Any],
    prompts: list[np.ndarray],
    row: dict[str, Any],
    options: Any,
    floor: Floor,
) -> list[Row]:
    """Compare hits, hits with slots, and ours with its floor."""
    length = len(prompts[0])
    calls = max(len(prompts), min(512, 2_000_000 // length))
    plain = compared(Row("hit", **row), compare(trees, prompts, calls, options.rounds, "match"))
    rows = [at_least(plain, RUST, 2)]
    with_slots = {name: tree for name, tree in trees.items() if hasattr(tree, "match_slots")}
    slots = compared(
        Row("hit + slots", **row),
        compare(with_slots, prompts, calls, options.rounds, "match_slots"),
    )
    rows.append(at_least(slots, RUST, 5))
    rows += floor_rows(trees[Ours.name], prompts, row, options, floor, calls)
    return rows


def floor_rows(
    ours: Any,
    prompts: list[np.ndarray],
    row: dict[str, Any],
    options: Any,
    floor: Floor,
    calls: int,
) -> list[Row]:
    """Compare ours with its floor for the types of tokens that are read in place."""
    made = []
    for dtype in (np.int32, np.int64):
        typed = [prompt.astype(dtype) for prompt in prompts]
        inputs = [typed[at % len(typed)] for at in range(calls)]

        def job(inputs: list[Any] = inputs) -> Job:
            return ours.match_views, inputs

        edges = len(ours.match_views(typed[0]))
        least: list[float] = []

        def again(_: str, typed: Any = typed, edges: int = edges, least: Any = least) -> None:
            views = edges * floor.view_us(typed[0])
            least.append(floor.compare_us(typed) + views + floor.empty_us(ours))

        times = rounds({Ours.name: job}, options.rounds, after=again)[Ours.name]
        # The first round warms up, and has a floor of its own.
        over = statistics.median(a / b for a, b in zip(times, least[1:], strict=True))
        one = Row(f"hit + views, {np.dtype(dtype).name}", **row)
        one.figures = {Ours.name: statistics.median(times), "its floor": statistics.median(least)}
        made.append(at_most(one, "its floor", over, 1.5))
    return made


def measure(options: Any) -> list[Row]:
    """Hits in trees of all sizes, hot and cold, and of all lengths."""
    rows, floor = [], Floor()
    for leaves in options.leaves:
        for page in options.pages:
            kinds = options.fit(page, leaves)
            # A million leaves with 208 tokens each would only measure the machine's memory.
            own = 208 if leaves <= 100_000 else 64
            work = SharedPrompt(own=own)
            size = leaves * own + 4096
            shape = {"page": page, "leaves": leaves}
            trees = {}
            for kind in kinds:
                work.slots.next = work.shared
                requests = (work.request(number) for number in range(leaves))
                trees[kind.name] = filled(kind, page, requests, size)
            every = np.random.default_rng(1).permutation(leaves)
            hot = [work.tokens_of(int(number)) for number in every[:HOT]]
            what = {**shape, "workload": f"shared prompt, {len(hot[0]):,}, hot"}
            rows += hit_rows(trees, hot, what, options, floor)
            needed = min(leaves, COLD_BYTES // (len(hot[0]) * 4) + 1)
            cold = [work.tokens_of(int(number)) for number in every[:needed]]
            if needed * len(hot[0]) * 4 >= 32 << 20 or not options.full:
                many = {**shape, "workload": f"shared prompt, {needed:,} prompts"}
                rows += hit_rows(trees, cold, many, options, floor)
            if leaves <= 10_000:
                rows += few_shot(options, kinds, shape, floor)
                rows += chat(options, kinds, shape, floor)
    for length in options.lengths:
        for page in options.pages:
            rows += one_length(options, page, length, floor)
    return rows


def few_shot(options: Any, kinds: list[Any], shape: dict[str, int], floor: Floor) -> list[Row]:
    work = FewShot()
    requests = [work.request(number) for number in range(shape["leaves"])]
    size = shape["leaves"] * 64 + 4096
    trees = {kind.name: filled(kind, shape["page"], requests, size) for kind in kinds}
    prompts = [request.tokens for request in requests if len(request.tokens) == 1600][:HOT]
    return hit_rows(trees, prompts, {**shape, "workload": "few-shot, 1,600"}, options, floor)


def chat(options: Any, kinds: list[Any], shape: dict[str, int], floor: Floor) -> list[Row]:
    """Eight edges on the path: every turn was answered twice."""
    work = Chat(forked=True)
    leaves = shape["leaves"] // work.turns
    requests = [step for number in range(leaves) for step in work.steps(number)]
    size = leaves * (work.turn + 16) * work.turns + 4096
    trees = {kind.name: filled(kind, shape["page"], requests, size) for kind in kinds}
    prompts = [work.whole(number).tokens for number in range(HOT)]
    what = {**shape, "workload": "chat, 8 edges, 1,168"}
    return hit_rows(trees, prompts, what, options, floor)


def one_length(options: Any, page: int, length: int, floor: Floor) -> list[Row]:
    """Two edges of that many tokens together, among a thousand other leaves."""
    work = SharedPrompt(shared=length - 208)
    others = SharedPrompt(shared=512, own=64, seed=77)
    others.slots.next = 10_000_000
    requests = [work.request(number) for number in range(HOT)]
    requests += [others.request(number) for number in range(1000)]
    size = length + 1000 * 64 + 8192
    kinds = options.fit(page, 1000)
    trees = {kind.name: filled(kind, page, requests, size) for kind in kinds}
    prompts = [work.tokens_of(number) for number in range(HOT)]
    what = {"page": page, "leaves": 1000, "workload": f"one of {length:,}"}
    return hit_rows(trees, prompts, what, options, floor)


def measure_long(options: Any) -> list[Row]:
    """One very long prompt that was stored in pieces of 512 tokens."""
    rows, floor = [], Floor()
    for page in options.pages:
        for forked in (False, True):
            steps: list[Request] = long_prompt(131_072, 512, forked)
            kinds = [one for one in options.fit(page, 1) if one.name not in ("vLLM", "Dynamo")]
            trees = {kind.name: filled(kind, page, steps, 300_000) for kind in kinds}
            name = "131,072 in 512s" + (", forked" if forked else "")
            what = {"page": page, "leaves": 1 + 255 * forked, "workload": name}
            rows += hit_rows(trees, [steps[-1].tokens], what, options, floor)
    return rows
