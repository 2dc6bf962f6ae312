"""Many prompts in one call against one call for each, and the order of a waiting queue.

Ratios of one run, on the same arrays. `--json` prints the figures only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np
from radix_rs import RadixTree

ROUNDS = 15


def _best(work: Callable[[], object]) -> float:
    """Seconds of the best of several runs: everything else on the machine only adds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _prompts(rng: np.random.Generator, count: int, shared: int, own: int) -> list[np.ndarray]:
    head = rng.integers(0, 32_000, shared, np.int32)
    return [np.concatenate([head, rng.integers(0, 32_000, own, np.int32)]) for _ in range(count)]


def _match(page_size: int, pieces: int) -> dict[str, float]:
    """256 prompts: 2,048 shared tokens, which were stored in `pieces` turns, and 64 own ones."""
    rng = np.random.default_rng(7)
    prompts = _prompts(rng, 256, 2048, 64)
    tree = RadixTree(page_size)
    for length in range(2048 // pieces, 2049, 2048 // pieces):
        tree.insert(prompts[0][:length], np.arange(length, dtype=np.int32))
    first = 1 << 20
    for i, prompt in enumerate(prompts):
        start = first + i * 4096
        tree.insert(prompt, np.arange(start, start + len(prompt), dtype=np.int32))
    many = _best(lambda: tree.match_many(prompts))
    single = _best(lambda: [tree.match_prefix(prompt) for prompt in prompts])
    return {"single_us": single * 1e6, "many_us": many * 1e6, "times_as_fast": single / many}


def _insert(page_size: int) -> dict[str, float]:
    """The same prompts into an empty tree, again and again."""
    prompts = _prompts(np.random.default_rng(7), 256, 2048, 64)
    slots = [np.arange(i * 4096, i * 4096 + 2112, dtype=np.int32) for i in range(256)]

    def single() -> None:
        tree = RadixTree(page_size)
        for prompt, own in zip(prompts, slots, strict=True):
            tree.insert(prompt, own)

    many = _best(lambda: RadixTree(page_size).insert_many(prompts, slots))
    one = _best(single)
    return {"single_us": one * 1e6, "many_us": many * 1e6, "times_as_fast": one / many}


def _order(groups: int) -> dict[str, float]:
    """4,096 prompts of 1,024 tokens in `groups` that share all but the last 64, in random order."""
    rng = np.random.default_rng(7)
    prompts = [p for _ in range(groups) for p in _prompts(rng, 4096 // groups, 960, 64)]
    prompts = [prompts[i] for i in rng.permutation(4096)]
    tree = RadixTree(16)
    return {
        "prefix_order_ms": _best(lambda: tree.prefix_order(prompts)) * 1e3,
        "read_once_ms": _best(lambda: [int(prompt.max()) for prompt in prompts]) * 1e3,
    }


def main() -> None:
    """Print every figure."""
    figures: dict[str, dict[str, float]] = {}
    for page_size in (1, 16):
        for pieces in (1, 16):
            name = f"match 256, page {page_size}, shared part of {pieces} edges"
            figures[name] = _match(page_size, pieces)
        figures[f"insert 256, page {page_size}"] = _insert(page_size)
    for groups in (1, 64, 4096):
        figures[f"order of 4096, {groups} groups"] = _order(groups)
    if "--json" in sys.argv:
        print(json.dumps(figures))
        return
    for name, row in figures.items():
        print(f"{name:45}", "  ".join(f"{key} {value:,.2f}" for key, value in row.items()))


if __name__ == "__main__":
    main()
