"""Namespaces as wholes: how much is in each, and dropping one."""

from __future__ import annotations

import pytest
from radix_rs import EventLog, RadixTree
from radix_rs.errors import InvalidInputError, StaleHandleError


def test_each_namespace_counts_its_own():
    tree = RadixTree()
    tree.insert([1, 2], [0, 1])
    tree.insert([1, 2, 3], [2, 3, 4], "a")
    with tree.lock_prefix([1], "a"):
        stats = tree.namespace_stats()
    assert stats[0] == (None, 2, 0, 2)
    assert stats[1][1:] == (3, 1, 3)
    assert stats[1][0].endswith(b"a")


def test_a_dropped_namespace_is_gone_and_its_leases_stay_true():
    log = EventLog()
    tree = RadixTree(events=log)
    tree.insert([1, 2], [0, 1])
    handle = tree.insert([1, 2, 3], [2, 3, 4], ("weights", 1)).handle
    lease = tree.lock_prefix([1], ("weights", 1))
    assert tree.drop_namespace(("weights", 1)).tolist() == [3, 4]
    assert tree.match_prefix([1, 2], ("weights", 1)).length == 0
    assert tree.match_prefix([1, 2]).length == 2
    assert lease.slots.tolist() == [2]
    with pytest.raises(StaleHandleError):
        tree.slots(handle)
    tree.check()
    tree.insert([1], [9], ("weights", 1))
    assert tree.match_prefix([1], ("weights", 1)).slots.tolist() == [9]
    lease.release()
    assert tree.evict(1).tolist() == [2]
    tree.check()
    assert [event.kind for event in log.drain()] == ["stored", "stored", "dropped", "stored"]
    assert tree.drop_namespace("none").tolist() == []


@pytest.mark.parametrize("namespace", [None, 5])
def test_the_default_namespace_and_what_is_none_are_refused(namespace):
    with pytest.raises(InvalidInputError):
        RadixTree().drop_namespace(namespace)
