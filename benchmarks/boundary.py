"""What does a call from Python cost, and how much of it is the walk.

The floor of a hit is one comparison of the same tokens of the same dtype, one view per edge, and
one empty call. Prints one JSON line, then a table in nanoseconds: the best of several rounds.
"""

from __future__ import annotations

import argparse
import json
import timeit
from array import array
from collections.abc import Callable

import numpy as np
from radix_rs import PrefixCache, RadixTree


def best_ns(call: Callable[[], object], rounds: int) -> float:
    """Nanoseconds of the fastest of ``rounds`` runs, the loop's own cost taken off."""
    number = max(10, int(2e-2 / max(1e-8, timeit.timeit(call, number=10) / 10)))
    spent = min(timeit.repeat(call, number=number, repeat=rounds)) / number
    empty = min(timeit.repeat(lambda: None, number=number, repeat=rounds)) / number
    return max(0.0, (spent - empty) * 1e9)


def measure(num_tokens: int, page_size: int, rounds: int) -> dict[str, float]:
    """All figures for one length and page size."""
    tree = RadixTree(page_size)
    tokens = np.arange(num_tokens, dtype=np.int32)
    slots = np.arange(num_tokens, dtype=np.int32)
    tree.insert(tokens, slots)
    wide, copy, none = tokens.astype(np.int64), tokens.copy(), tokens[:0]
    python_array, python_list = array("q", range(num_tokens)), list(range(num_tokens))
    row = np.zeros(num_tokens, dtype=np.int32)
    inputs: dict[str, object] = {
        "int32": tokens,
        "int64": wide,
        "array q": python_array,
        "list": python_list,
    }
    try:
        import torch
    except ImportError:
        pass
    else:
        inputs["tensor int64"] = torch.from_numpy(wide)
    figures = {
        "floor: empty call": best_ns(lambda: tree.match_prefix(none), rounds),
        "floor: compare in NumPy": best_ns(lambda: np.array_equal(tokens, copy), rounds),
    }
    for name, values in inputs.items():
        figures[f"hit, {name}"] = best_ns(lambda values=values: tree.match_prefix(values), rounds)
    cache = PrefixCache(1 << 20, page_size)
    figures |= {
        "hit + segments": best_ns(lambda: tree.match_prefix(tokens).segments, rounds),
        "hit + slots": best_ns(lambda: tree.match_prefix(tokens).slots, rounds),
        "hit + slots in a row": best_ns(lambda: tree.match_prefix(tokens).write_slots(row), rounds),
        "lock + release": best_ns(lambda: tree.lock_prefix(tokens).release(), rounds),
        "insert again": best_ns(lambda: tree.insert(tokens, slots), rounds),
        "begin + abort": best_ns(lambda: cache.begin(tokens).abort(), rounds),
    }
    return figures


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[2_208, 131_072])
    parser.add_argument("--page-size", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    runs = [
        {"num_tokens": n, "page_size": p, "ns": measure(n, p, options.rounds)}
        for n in options.tokens
        for p in options.page_size
    ]
    print(json.dumps({"benchmark": "boundary", "runs": runs}))
    print(f"{'ns':>24}" + "".join(f"{r['num_tokens']:>9} p{r['page_size']:<3}" for r in runs))
    for name in runs[0]["ns"]:
        print(f"{name:>24}" + "".join(f"{run['ns'][name]:>11,.0f}  " for run in runs))


if __name__ == "__main__":
    main()
