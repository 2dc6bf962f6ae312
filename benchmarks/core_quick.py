"""The tree from Python, against a radix tree in plain Python, on the calls that an engine makes.

The peer is what one writes in an afternoon, and what engines have long used: a dict of children
per node, edges as NumPy arrays that are compared at once, a counter of users on each node, and for
an eviction a heap of all leaves. Both trees get the same arrays. Requests share a system prompt
of 4,096 tokens and have 256 own tokens each.

match   a cached prompt is looked up and its slots are read
lock    the same, protected from eviction and released again
insert  own tokens of a new request are stored behind the system prompt
evict   room for 256 tokens is made, by the least recently used leaf
turns   a conversation that grew to 4,096 tokens in 64 turns is looked up

Rounds of both trees take turns; a time is the median over rounds, a ratio the median over rounds
of peer time / our time, so more is faster.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from radix_rs import RadixTree

Ints = NDArray[np.int32]
SHARED, OWN, CALLS, TURNS = 4096, 256, 64, 64


class PlainNode:
    """An edge and what hangs below it."""

    def __init__(self, tokens: Ints, slots: Ints, parent: PlainNode | None) -> None:
        self.tokens, self.slots, self.parent = tokens, slots, parent
        self.children: dict[int, PlainNode] = {}
        self.users = 0
        self.last_use = 0


class PlainTree:
    """The peer: page size 1, least recently used first."""

    def __init__(self) -> None:
        self.root = PlainNode(np.empty(0, np.int32), np.empty(0, np.int32), None)
        self.clock = 0

    def match(self, tokens: Ints) -> Ints:
        """Return the slots of what is cached."""
        node, at, found = self.root, 0, [self.root.slots]
        while at < len(tokens) and (child := node.children.get(int(tokens[at]))) is not None:
            common = _common(child.tokens, tokens[at:])
            found.append(child.slots[:common])
            at += common
            if common < len(child.tokens):
                break
            node = child
        return np.concatenate(found)

    def lock(self, tokens: Ints) -> tuple[Ints, PlainNode]:
        """Return them with the node to release."""
        self.clock += 1
        node, at, found = self.root, 0, [self.root.slots]
        while at < len(tokens) and (child := node.children.get(int(tokens[at]))) is not None:
            common = _common(child.tokens, tokens[at:])
            if common < len(child.tokens):
                child = self._split(child, common)
            child.users += 1
            child.last_use = self.clock
            found.append(child.slots)
            at += common
            node = child
        return np.concatenate(found), node

    def release(self, node: PlainNode) -> None:
        """Give up a lock."""
        at: PlainNode | None = node
        while at is not None:
            at.users -= 1
            at = at.parent

    def insert(self, tokens: Ints, slots: Ints) -> int:
        """Store what is new, return how much was not."""
        self.clock += 1
        node, at = self.root, 0
        while at < len(tokens) and (child := node.children.get(int(tokens[at]))) is not None:
            common = _common(child.tokens, tokens[at:])
            if common < len(child.tokens):
                child = self._split(child, common)
            child.last_use = self.clock
            at += common
            node = child
        if at < len(tokens):
            leaf = PlainNode(tokens[at:].copy(), slots[at:].copy(), node)
            leaf.last_use = self.clock
            node.children[int(tokens[at])] = leaf
        return at

    def evict(self, num_tokens: int) -> list[Ints]:
        """Free leaves until there are enough tokens."""
        leaves = [(leaf.last_use, id(leaf), leaf) for leaf in self._leaves() if leaf.users == 0]
        heapq.heapify(leaves)
        freed: list[Ints] = []
        while num_tokens > 0 and leaves:
            _, _, leaf = heapq.heappop(leaves)
            freed.append(leaf.slots)
            num_tokens -= len(leaf.slots)
            parent = leaf.parent
            assert parent is not None
            del parent.children[int(leaf.tokens[0])]
            if not parent.children and parent.users == 0 and parent is not self.root:
                heapq.heappush(leaves, (parent.last_use, id(parent), parent))
        return freed

    def _split(self, node: PlainNode, at: int) -> PlainNode:
        upper = PlainNode(node.tokens[:at], node.slots[:at], node.parent)
        upper.users, upper.last_use = node.users, node.last_use
        assert node.parent is not None
        node.parent.children[int(node.tokens[0])] = upper
        upper.children[int(node.tokens[at])] = node
        node.tokens, node.slots, node.parent = node.tokens[at:], node.slots[at:], upper
        return upper

    def _leaves(self) -> list[PlainNode]:
        stack, leaves = [self.root], []
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if not node.children and node is not self.root:
                leaves.append(node)
        return leaves


def _common(a: Ints, b: Ints) -> int:
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    first = int(differs.argmax())
    return first if differs[first] else length


class Case:
    """Both trees with the same requests in them."""

    def __init__(self, num_requests: int) -> None:
        self.random = np.random.default_rng(7)
        self.shared = self._tokens(SHARED)
        self.next_slot = 0
        self.ours, self.plain = RadixTree(), PlainTree()
        self.prompts = []
        for _ in range(num_requests):
            tokens, slots = self.new_request()
            self.ours.insert(tokens, slots)
            self.plain.insert(tokens, slots)
            self.prompts.append(tokens[SHARED:])

    def new_request(self) -> tuple[Ints, Ints]:
        """Return a prompt that nobody had before, and slots for it."""
        tokens = np.concatenate([self.shared, self._tokens(OWN)])
        slots = np.arange(len(tokens), dtype=np.int32)  # those of the shared part are the first
        slots[SHARED:] += self.next_slot
        self.next_slot += OWN
        return tokens, slots

    def known_requests(self) -> list[Ints]:
        """Return prompts that are cached."""
        chosen = self.random.choice(len(self.prompts), CALLS)
        return [np.concatenate([self.shared, self.prompts[index]]) for index in chosen]

    def _tokens(self, count: int) -> Ints:
        return self.random.integers(0, 2**31 - 1, count, dtype=np.int32)


def per_call(run: Callable[[Any], object], inputs: list[Any]) -> float:
    """Return microseconds per call."""
    start = time.perf_counter()
    for item in inputs:
        run(item)
    return (time.perf_counter() - start) / len(inputs) * 1e6


def lock_ours(tree: RadixTree, tokens: Ints) -> None:
    with tree.lock_prefix(tokens) as lease:
        assert lease.slots is not None


def lock_plain(tree: PlainTree, tokens: Ints) -> None:
    _, node = tree.lock(tokens)
    tree.release(node)


def measure(num_requests: int, rounds: int) -> list[dict[str, object]]:
    case = Case(num_requests)
    ours, plain = case.ours, case.plain
    times: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds + 1):
        known = case.known_requests()
        new = [case.new_request() for _ in range(CALLS)]
        room = [OWN] * CALLS
        runs: list[tuple[str, list[Any], Callable[[Any], object], Callable[[Any], object]]] = [
            ("match", known, lambda t: ours.match_prefix(t).slots, plain.match),
            ("lock", known, lambda t: lock_ours(ours, t), lambda t: lock_plain(plain, t)),
            ("insert", new, lambda r: ours.insert(*r), lambda r: plain.insert(*r)),
            # As much goes as has come, so the trees keep their size.
            ("evict", room, ours.evict, plain.evict),
        ]
        for name, inputs, run_ours, run_plain in runs:
            pair = [(0, run_ours), (1, run_plain)]
            measured = [0.0, 0.0]
            for which, run in pair if number % 2 else reversed(pair):
                measured[which] = per_call(run, inputs)
            if number:  # the first one warms up
                times.setdefault(name, []).append((measured[0], measured[1]))
        # What was evicted is not asked for again.
        case.prompts = [p for p in case.prompts if _is_cached(case, p)]
        case.prompts += [tokens[SHARED:] for tokens, _ in new]
    ours.check()
    return [row(name, num_requests, pairs) for name, pairs in times.items()]


def measure_turns(rounds: int) -> dict[str, object]:
    """Measure a match of one long conversation that was stored turn by turn."""
    tokens = np.random.default_rng(7).integers(0, 2**31 - 1, SHARED, dtype=np.int32)
    slots = np.arange(SHARED, dtype=np.int32)
    ours, plain = RadixTree(), PlainTree()
    for end in range(SHARED // TURNS, SHARED + 1, SHARED // TURNS):
        ours.insert(tokens[:end], slots[:end])
        plain.insert(tokens[:end], slots[:end])
    pairs = []
    for _ in range(rounds):
        a = per_call(lambda t: ours.match_prefix(t).slots, [tokens] * CALLS)
        pairs.append((a, per_call(plain.match, [tokens] * CALLS)))
    return row("turns", 1, pairs)


def row(name: str, num_requests: int, pairs: list[tuple[float, float]]) -> dict[str, object]:
    return {
        "case": name,
        "requests": num_requests,
        "ours_us": statistics.median(a for a, _ in pairs),
        "plain_us": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(b / a for a, b in pairs),
    }


def _is_cached(case: Case, own: Ints) -> bool:
    tokens = np.concatenate([case.shared, own])
    return case.ours.match_prefix(tokens).length == len(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    arguments = parser.parse_args()
    rows = [one for count in arguments.requests for one in measure(count, arguments.rounds)]
    rows.append(measure_turns(arguments.rounds))
    if arguments.json:
        print(json.dumps({"shared": SHARED, "own": OWN, "rows": rows}, indent=2))
        return
    print(f"{'':<8}{'requests':>10}{'ours':>12}{'plain Python':>15}{'ratio':>10}")
    for one in rows:
        print(
            f"{one['case']:<8}{one['requests']:>10,}{one['ours_us']:>9.1f} us"
            f"{one['plain_us']:>12.1f} us{one['ratio']:>10.1f}"
        )


if __name__ == "__main__":
    main()
