"""What a tree tells about itself."""

from __future__ import annotations

import numpy as np
from radix_rs import EventLog, PrefixCache, RadixTree


def test_events_say_what_is_cached():
    log = EventLog()
    tree = RadixTree(2, events=log)
    tree.insert([1, 2, 3, 4], [0, 1, 2, 3], "x")
    tree.insert([1, 2, 5, 6], [0, 1, 4, 5], "x")
    stored = log.drain()
    assert [(e.kind, e.tokens.tolist(), e.start, e.slots.tolist()) for e in stored] == [
        ("stored", [1, 2, 3, 4], 0, [0, 1, 2, 3]),
        ("stored", [1, 2, 5, 6], 2, [4, 5]),
    ]
    assert len({e.namespace for e in stored}) == 1
    assert isinstance(stored[0].namespace, bytes)
    assert stored[0].tokens.dtype == np.uint32
    assert stored[0].slots.dtype == np.int32
    tree.evict(2)
    (removed,) = log.drain()
    assert (removed.kind, removed.tokens.tolist(), removed.start) == ("removed", [1, 2, 3, 4], 2)
    tree.reset()
    assert [e.kind for e in log.drain()] == ["cleared"]
    assert log.drain() == []
    seqs = [e.seq for e in (*stored, removed)]
    assert seqs == sorted(seqs)
    assert "stored" in repr(stored[0])


def test_64_bit_atoms_are_told_as_such():
    log = EventLog()
    tree = RadixTree(atom="u64", events=log)
    tree.insert([2**40], [3])
    (event,) = log.drain()
    assert event.tokens.dtype == np.uint64
    assert event.tokens.tolist() == [2**40]


def test_a_cache_tells_what_it_publishes_and_evicts():
    log = EventLog()
    cache = PrefixCache(8, 4, events=log)
    for prompt in ([1, 2, 3, 4, 5], [9, 9, 9, 9, 9, 9, 9, 9]):
        with cache.begin(prompt) as sequence:
            sequence.reserve(len(prompt))
            sequence.commit(len(prompt))
    kinds = [(e.kind, e.tokens.tolist()[:1]) for e in log.drain()]
    assert kinds == [("stored", [1]), ("removed", [1]), ("stored", [9])]
    cache.check()


def test_an_event_keeps_its_arrays():
    log = EventLog()
    tree = RadixTree(events=log)
    tree.insert([1, 2], [0, 1])
    (event,) = log.drain()
    del log, tree
    assert (event.tokens.tolist(), event.slots.tolist()) == ([1, 2], [0, 1])
    assert event.namespace is None
