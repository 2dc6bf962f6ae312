"""Arrays that come back are views of the core's memory, and stay valid whatever happens to it."""

from __future__ import annotations

import array
import gc

import numpy as np
import pytest
from radix_rs import Lease, PrefixCache, RadixTree, SlotPool
from radix_rs.errors import InvalidInputError, LeaseError, StaleHandleError


def _address(values: np.ndarray) -> int:
    return values.ctypes.data


@pytest.fixture
def tree():
    """`[1 2 3 4 | 5 6]` and `[1 2 3 4 | 7 8]`."""
    tree = RadixTree()
    tree.insert([1, 2, 3, 4, 5, 6], [10, 11, 12, 13, 14, 15])
    tree.insert([1, 2, 3, 4, 7, 8], [10, 11, 12, 13, 20, 21])
    return tree


def test_segments_are_one_view_per_edge(tree):
    match = tree.match_prefix([1, 2, 3, 4, 7, 8, 9])
    assert match.length == len(match) == 6
    assert [segment.tolist() for segment in match.segments] == [[10, 11, 12, 13], [20, 21]]
    assert match.slots.tolist() == [10, 11, 12, 13, 20, 21]


def test_a_segment_lies_inside_the_tree(tree):
    # Two matches see the same memory, at the same place; a shorter one sees its beginning.
    first = tree.match_prefix([1, 2, 3, 4, 5, 6])
    second = tree.match_prefix([1, 2, 3])
    assert _address(first.segments[0]) == _address(second.segments[0]) == _address(second.slots)
    assert np.shares_memory(first.segments[0], second.segments[0])
    with tree.lock_prefix([1, 2, 3, 4, 5, 6]) as lease:
        assert _address(lease.segments[0]) == _address(first.segments[0])
        assert _address(lease.segments[1]) == _address(first.segments[1])
    assert _address(tree.slots(second.handle)) == _address(first.segments[0])


def test_views_are_read_only(tree):
    match = tree.match_prefix([1, 2, 3, 4, 5])
    with tree.lock_prefix([1, 2]) as lease:
        views = [*match.segments, *lease.segments, lease.slots]
    cache = PrefixCache(8)
    sequence = cache.begin([1, 2])
    views += [sequence.reserve(2), sequence.slots, sequence.page_table]
    for view in views:
        assert view.dtype == np.int32
        assert view.flags.c_contiguous
        assert view.flags.aligned
        assert not view.flags.owndata
        assert not view.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True


def test_slots_that_are_yours_are_writable(tree):
    for mine in (tree.evict(1), SlotPool(4).alloc(2), RadixTree().reset()):
        assert mine.flags.writeable


def test_views_stay_valid_after_eviction_reset_and_the_end_of_the_tree(tree):
    match = tree.match_prefix([1, 2, 3, 4, 5, 6])
    with tree.lock_prefix([1, 2, 3, 4, 7, 8]) as lease:
        views = (*match.segments, *lease.segments)
    expected = [view.tolist() for view in views]
    assert len(tree.evict(100)) == 8
    tree.insert(range(100, 200), range(100, 200))
    tree.reset()
    del tree, match, lease
    gc.collect()
    np.random.default_rng(0).integers(0, 9, 10_000)
    assert [view.tolist() for view in views] == expected


def test_views_of_a_lease_do_not_keep_the_lease(tree):
    views = tree.lock_prefix([1, 2]).segments
    assert tree.protected_tokens == 0
    assert views[0].tolist() == [10, 11]


def test_match_into_is_a_match_and_its_slots_in_one():
    tree = RadixTree()
    tree.insert([1, 2, 3, 4], [10, 11, 12, 13], "adapter")
    tree.insert([1, 2, 5], [10, 11, 14], "adapter")
    table = np.full((2, 4), -1, dtype=np.int32)
    assert tree.match_into([1, 2, 3, 9], table[1], "adapter") == 3
    assert table.tolist() == [[-1] * 4, [10, 11, 12, -1]]
    assert tree.match_into([1, 2, 3, 4], table[0][:2], "adapter", start=1) == 4
    assert table[0].tolist() == [11, 12, -1, -1]
    assert tree.match_into([1, 2], table[0]) == 0
    assert tree.match_into([1, 2, 3, 4], table[0], "adapter", start=9) == 4
    assert table[0].tolist() == [11, 12, -1, -1]
    with pytest.raises(InvalidInputError, match="out must be int32"):
        tree.match_into([1], np.zeros(4, dtype=np.int64))
    with pytest.raises(InvalidInputError, match="start"):
        tree.match_into([1], table[0], start=-1)


def test_write_slots_fills_the_caller_s_memory(tree):
    match = tree.match_prefix([1, 2, 3, 4, 5, 6])
    with tree.lock_prefix([1, 2, 3, 4, 5, 6]) as lease:
        for found in (match, lease):
            table = np.zeros((2, 8), np.int32)
            assert found.write_slots(table[1]) == 6
            assert table.tolist() == [[0] * 8, [10, 11, 12, 13, 14, 15, 0, 0]]
            assert found.write_slots(table[0], start=3) == 3
            assert table[0].tolist() == [13, 14, 15, 0, 0, 0, 0, 0]
            short = array.array("i", [0] * 5)
            assert found.write_slots(short) == 5
            assert short.tolist() == [10, 11, 12, 13, 14]
            assert found.write_slots(memoryview(short), 5) == 1
            assert found.write_slots(short, 6) == found.write_slots(short, 2**40) == 0
            assert found.write_slots(np.zeros(0, np.int32)) == 0


def _read_only():
    values = np.zeros(8, np.int32)
    values.flags.writeable = False
    return values


OUT = {
    "int64": (np.zeros(8, np.int64), "int32"),
    "uint32": (np.zeros(8, np.uint32), "int32"),
    "float": (np.zeros(8, np.float32), "int32"),
    "foreign byte order": (np.zeros(8, np.dtype(np.int32).newbyteorder()), "int32"),
    "2-D": (np.zeros((2, 8), np.int32), "one-dimensional"),
    "every second": (np.zeros(8, np.int32)[::2], "contiguous"),
    "backwards": (np.zeros(8, np.int32)[::-1], "contiguous"),
    "unaligned": (np.zeros(33, np.uint8)[1:].view(np.int32), "aligned"),
    "read-only": (_read_only(), "read-only"),
    "bytes": (memoryview(bytes(32)).cast("i"), "read-only"),
    "list": ([0] * 8, "not list"),
    "None": (None, "not NoneType"),
}


@pytest.mark.parametrize(("out", "message"), OUT.values(), ids=OUT)
def test_what_cannot_be_written_to_is_a_typed_error(tree, out, message):
    cache = PrefixCache(8)
    calls = [
        tree.match_prefix([1, 2]).write_slots,
        tree.lock_prefix([1, 2]).write_slots,
        SlotPool(8).alloc_into,
    ]
    if out is not None:
        calls.append(lambda row: cache.begin([1], out=row))
    for call in calls:
        with pytest.raises(InvalidInputError, match=message):
            call(out)
    cache.check()


def test_alloc_into_fills_the_caller_s_memory():
    pool = SlotPool(16, 4)
    table = np.zeros((2, 8), np.int32)
    pool.alloc_into(table[1])
    assert table.tolist() == [[0] * 8, list(range(8))]
    with pytest.raises(InvalidInputError):
        pool.alloc_into(table[0, :3])
    assert pool.num_free == 8


def test_handles_are_weak_hashable_and_comparable(tree):
    first = tree.match_prefix([1, 2, 3, 4, 5, 6]).handle
    again = tree.match_prefix([1, 2, 3, 4, 5, 6, 7]).handle
    other = tree.match_prefix([1, 2, 3, 4, 7, 8]).handle
    assert first == again
    assert hash(first) == hash(again)
    assert first != other
    assert first != "handle"
    assert len({first, again, other}) == 2
    assert first.end_depth == 6
    with tree.lock(first) as lease:
        assert lease.length == 6
        assert tree.protected_tokens == 6
    assert tree.parent(first).end_depth == 4
    assert tree.node(first).start == 4
    tree.evict(100)
    for use in (tree.lock, tree.slots, tree.parent, tree.node):
        with pytest.raises(StaleHandleError):
            use(first)


def test_a_handle_of_another_tree_is_stale(tree):
    twin = RadixTree()
    twin.insert([1, 2, 3, 4, 5, 6], [10, 11, 12, 13, 14, 15])
    twin.insert([1, 2, 3, 4, 7, 8], [10, 11, 12, 13, 20, 21])
    handle = twin.match_prefix([1, 2, 3, 4, 5, 6]).handle
    for use in (tree.lock, tree.slots, tree.parent, tree.node):
        with pytest.raises(StaleHandleError):
            use(handle)
    assert handle != tree.match_prefix([1, 2, 3, 4, 5, 6]).handle


def test_locking_a_handle_stamps_and_protects_only_up_to_it():
    tree = RadixTree()
    tree.insert([1, 2, 3, 4], [10, 11, 12, 13])
    handle = tree.match_prefix([1, 2]).handle
    tree.insert([5, 6], [14, 15])
    with tree.lock(handle) as lease:
        assert lease.slots.tolist() == [10, 11]
        assert tree.protected_tokens == 2
    assert tree.evict(2).tolist() == [12, 13]


def test_a_lease_is_released_once_and_harmlessly_again(tree):
    lease = tree.lock_prefix([1, 2, 3])
    assert (tree.protected_tokens, lease.released) == (3, False)
    lease.release()
    lease.release()
    assert (tree.protected_tokens, lease.released) == (0, True)
    for look in (
        lambda: lease.length,
        lambda: lease.segments,
        lambda: lease.slots,
        lambda: lease.handle,
        lambda: lease.write_slots(np.zeros(4, np.int32)),
        lambda: tree.insert([1, 2, 3, 9], [10, 11, 12, 30], lease=lease),
    ):
        with pytest.raises(LeaseError, match="released"):
            look()
    assert "released" in repr(lease)


def test_leaving_the_block_releases_even_after_an_error(tree):
    with pytest.raises(KeyError), tree.lock_prefix([1, 2, 3]) as lease:
        raise KeyError
    assert lease.released
    assert tree.protected_tokens == 0


def test_dropping_a_lease_releases_it(tree):
    lease = tree.lock_prefix([1, 2, 3])
    del lease
    assert tree.protected_tokens == 0


def test_a_lease_of_another_tree_is_refused(tree):
    for other in (RadixTree(), RadixTree(atom="u64")):
        other.insert([1, 2], [0, 1])
        lease = other.lock_prefix([1, 2])
        with pytest.raises(LeaseError, match="another tree"):
            tree.insert([1, 2, 3], [10, 11, 12], lease=lease)
        assert lease.length == 2


def test_an_insert_with_a_lease_lets_it_grow(tree):
    lease = tree.lock_prefix([1, 2, 3, 4, 7, 8])
    done = tree.insert([1, 2, 3, 4, 7, 8, 9], [10, 11, 12, 13, 20, 21, 22], lease=lease)
    assert (done.cached_len, done.length, done.handle.end_depth) == (6, 7, 7)
    assert lease.length == tree.protected_tokens == 7
    with pytest.raises(LeaseError):
        tree.insert([2, 2], [10, 30], lease=lease)


def test_classes_cannot_be_made_by_hand():
    for kind in (Lease, type(RadixTree().match_prefix([]))):
        with pytest.raises(TypeError):
            kind()
