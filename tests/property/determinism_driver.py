"""Seeded operations on a cache and a tree; prints what they handed out and evicted.

Run as a program by ``test_determinism.py``, in fresh processes whose string hashes and addresses
differ. The random numbers come from a generator that is written out here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from radix_rs import PrefixCache, RadixTree
from radix_rs.errors import CapacityError


def numbers(seed: int) -> Iterator[int]:
    """Yield pseudo-random numbers (a linear congruential generator)."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


def drive_cache(seed: int, steps: int) -> list[Any]:
    """Return every row and every victim of a random life of a cache."""
    random = numbers(seed)
    page_size = [1, 4, 16][seed % 3]
    cache = PrefixCache(48 * page_size, page_size)
    live: list[Any] = []
    log: list[Any] = []
    for _ in range(steps):
        choice = next(random) % 10
        if choice < 3 or not live:
            length = next(random) % (6 * page_size) + 1
            letters = [next(random) % 2 for _ in range(6)]
            tokens = [letters[i // page_size] for i in range(length)]
            space = [None, "a", ("adapter", "a"), b"a"][next(random) % 4]
            live.append(cache.begin(tokens, space))
            choice = 3
            index = len(live) - 1
        else:
            index = next(random) % len(live)
        sequence = live[index]
        try:
            if choice < 6:
                missing = max(0, sequence.num_tokens - sequence.num_reserved)
                log.append(sequence.reserve(missing + next(random) % 3).tolist())
                log.append(sequence.commit(sequence.num_reserved))
                sequence.append([next(random) % 2])
            elif choice == 6:
                sequence.truncate(next(random) % (sequence.num_tokens + 1))
            elif choice == 7 and len(live) < 12:
                children = sequence.fork(1 + next(random) % 2, next(random) % sequence.num_tokens)
                log.extend(child.copies.tolist() for child in children)
                live.extend(children)
            elif choice == 8:
                log.append(cache.tree.evict(next(random) % (2 * page_size)).tolist())
                cache.pool.free(log[-1])
            else:
                live.pop(index).finish()
        except CapacityError as error:
            log.append([error.needed, error.free, error.evictable, error.protected])
            live.pop(next(random) % len(live)).finish()
        except ZeroDivisionError:  # a fork of an empty sequence
            continue
        log.append(sorted(cache.stats().items()))
    return log


def drive_tree(seed: int, steps: int) -> list[Any]:
    """Return every victim, in order, of a random life of a tree."""
    random = numbers(seed)
    tree = RadixTree(1)
    log: list[Any] = []
    leases: list[Any] = []
    next_slot = 0
    for _ in range(steps):
        letters = next(random)
        tokens = [letters >> i & 1 for i in range(next(random) % 24)]
        choice = next(random) % 5
        if choice < 2:
            tree.insert(tokens, range(next_slot, next_slot + len(tokens)))
            next_slot += len(tokens)
        elif choice == 2:
            leases.append(tree.lock_prefix(tokens))
        elif choice == 3 and leases:
            leases.pop(next(random) % len(leases)).release()
        else:
            whole = bool(next(random) % 2)
            log.append(tree.evict(next(random) % 8, whole_leaves=whole).tolist())
    log.append(tree.evict(tree.cached_tokens).tolist())
    return log


if __name__ == "__main__":
    seeds, steps = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(seeds):
        print(json.dumps([drive_cache(seed, steps), drive_tree(seed, steps)]))
