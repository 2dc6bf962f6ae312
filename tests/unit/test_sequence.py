"""A sequence as Python sees it; its rules are tested against the reference in `tests/property`."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
from radix_rs import PrefixCache
from radix_rs.errors import CapacityError, InvalidInputError, LeaseError


@pytest.fixture
def cache():
    return PrefixCache(32, 4)


def test_slots_are_a_live_view(cache):
    first = cache.begin(range(9))
    first.reserve(9)
    second = cache.begin(range(9))
    new = second.reserve(9)
    slots, table = second.slots, second.page_table
    assert slots.ctypes.data == second.slots.ctypes.data == new.ctypes.data
    before = slots.tolist()
    first.commit(9)
    assert second.commit(9) == (0, 8)
    # The row was repointed to the pages that the first one had published.
    assert slots[:8].tolist() == first.slots[:8].tolist() != before[:8]
    assert new[:8].tolist() == slots[:8].tolist()
    assert table.tolist() == [slots[0] // 4, slots[4] // 4, slots[8] // 4]
    cache.check()


def test_a_view_does_not_move_while_the_row_grows(cache):
    sequence = cache.begin([1])
    first = sequence.reserve(1)
    address = first.ctypes.data
    for _ in range(7):
        sequence.reserve(4)
    assert sequence.slots.ctypes.data == address
    assert sequence.slots[0] == first[0]


def test_views_outlive_the_sequence_and_the_cache(cache):
    sequence = cache.begin(range(6))
    sequence.reserve(6)
    slots, table = sequence.slots, sequence.page_table
    expected = slots.tolist(), table.tolist()
    sequence.finish()
    del sequence, cache
    gc.collect()
    assert (slots.tolist(), table.tolist()) == expected


def test_out_is_the_row_itself(cache):
    table = np.full((3, 10), -7, np.int32)
    sequence = cache.begin(range(6), out=table[1])
    new = sequence.reserve(6)
    assert new.ctypes.data == sequence.slots.ctypes.data == table[1].ctypes.data
    assert table[1].tolist() == [*sequence.slots.tolist(), *[-7] * 4]
    sequence.commit(6)
    sequence.finish()
    again = cache.begin(range(6), out=table[2])
    assert again.cached_len == 4
    assert table[2, :4].tolist() == table[1, :4].tolist()
    assert (table[0] == -7).all()


def test_a_row_that_is_too_short_changes_nothing(cache):
    sequence = cache.begin(range(6), out=np.zeros(5, np.int32))
    with pytest.raises(InvalidInputError, match="row"):
        sequence.reserve(6)
    sequence.reserve(5)
    sequence.commit(5)
    sequence.finish()
    with pytest.raises(InvalidInputError, match="row"):
        cache.begin(range(6), out=np.zeros(3, np.int32))
    stats = cache.stats()
    assert (stats["num_sequences"], stats["held_tokens"], stats["protected_tokens"]) == (0, 0, 0)
    cache.check()


def test_the_row_is_held_as_long_as_somebody_looks_into_it(cache):
    row = np.zeros(8, np.int32)
    alive = weakref.ref(row)
    sequence = cache.begin([1], out=row)
    view = sequence.reserve(1)
    del row
    sequence.abort()
    del sequence
    gc.collect()
    assert alive() is not None
    del view
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("garbage", [-1, 2**31 - 1, 31, 0])
def test_a_caller_who_scribbles_over_its_row_harms_only_itself(cache, garbage):
    """The row is the caller's memory: what the core owns it must know from elsewhere."""
    row = np.zeros(16, np.int32)
    other = cache.begin(range(50, 58))
    other.reserve(8)
    other.commit(8)
    sequence = cache.begin(range(9), out=row)
    sequence.reserve(9)
    row[:] = garbage
    sequence.reserve(1)
    sequence.commit(9)
    row[:] = garbage
    branches = sequence.fork(2)
    sequence.truncate(5)
    row[:] = garbage
    sequence.reserve(3)
    sequence.finish()
    del branches
    other.finish()
    cache.check()
    stats = cache.stats()
    assert stats["num_free"] + stats["cached_tokens"] == 32
    slots = cache.tree.match_prefix(range(8)).slots
    assert slots.tolist() == sorted(set(slots.tolist()))


@pytest.mark.parametrize("end", ["finish", "abort"])
def test_finish_and_abort_twice_are_harmless_and_anything_else_is_not(cache, end):
    sequence = cache.begin(range(6))
    sequence.reserve(6)
    getattr(sequence, end)()
    sequence.finish()
    sequence.abort()
    assert sequence.finished
    for call in (
        lambda: sequence.reserve(1),
        lambda: sequence.append([1]),
        lambda: sequence.commit(0),
        lambda: sequence.truncate(0),
        lambda: sequence.fork(),
    ):
        with pytest.raises(LeaseError, match="finished"):
            call()
    assert "finished" in repr(sequence)
    cache.check()


def test_leaving_the_block_or_dropping_it_aborts(cache):
    with cache.begin(range(6)) as sequence:
        sequence.reserve(6)
        sequence.commit(4)
    assert sequence.finished
    assert cache.stats()["held_tokens"] == 0
    dropped = cache.begin(range(6))
    dropped.reserve(2)
    del dropped
    stats = cache.stats()
    assert (stats["num_sequences"], stats["held_tokens"], stats["cached_tokens"]) == (0, 0, 4)
    cache.check()


def test_a_capacity_error_carries_its_numbers(cache):
    kept = cache.begin(range(9))
    kept.reserve(9)
    kept.commit(8)
    sequence = cache.begin([99])
    with pytest.raises(CapacityError) as caught:
        sequence.reserve(21)
    error = caught.value
    assert (error.needed, error.free, error.evictable, error.protected) == (24, 20, 0, 8)
    assert sequence.num_reserved == 0
    cache.check()


def test_copies_of_a_fork_are_pairs(cache):
    sequence = cache.begin(range(6))
    sequence.reserve(6)
    sequence.commit(6)
    (branch,) = sequence.fork()
    assert branch.copies.dtype == np.int32
    assert branch.copies.shape == (2, 2)
    assert branch.copies[:, 0].tolist() == sequence.slots[4:6].tolist()
    assert branch.copies[:, 1].tolist() == branch.slots[4:6].tolist()
    assert sequence.copies.shape == (0, 2)


def test_slots_wait_for_their_fence(cache):
    sequence = cache.begin(range(6))
    sequence.reserve(6)
    fence = cache.fence()
    sequence.abort(after=fence)
    assert cache.stats()["waiting_tokens"] == 8
    assert cache.pool.num_free == 24
    cache.check()
    cache.signal(fence)
    cache.signal(fence)
    assert fence.signalled
    assert cache.pool.num_free == 32
    cache.check()
    late = cache.begin(range(6))
    late.reserve(6)
    late.finish(after=fence)
    assert cache.stats()["waiting_tokens"] == 0
    cache.check()


def test_dropping_a_fence_signals_it(cache):
    sequence = cache.begin(range(6))
    sequence.reserve(6)
    sequence.truncate(0, after=cache.fence())
    assert cache.pool.num_free == 32
    cache.check()


def test_a_fence_of_another_cache_is_refused(cache):
    other = PrefixCache(32, 4)
    sequence = cache.begin(range(6))
    sequence.reserve(6)
    fence = other.fence()
    for call in (
        lambda: sequence.commit(6, after=fence),
        lambda: sequence.truncate(5, after=fence),
        lambda: sequence.finish(after=fence),
        lambda: sequence.abort(after=fence),
    ):
        with pytest.raises(InvalidInputError, match="fence"):
            call()
    assert not fence.signalled
    sequence.abort()
    cache.check()
    other.check()


def test_audit_names_who_owns_what(cache):
    sequence = cache.begin(range(6))
    slots = sequence.reserve(6)
    (owner,) = cache.audit()
    assert owner["slots"].tolist() == [*slots.tolist(), 6, 7]
    assert (owner["sequence"], owner["begun_since"]) == (0, 0)
    younger = cache.begin(range(6))
    younger.reserve(1)
    assert [one["begun_since"] for one in cache.audit()] == [1, 0]
    sequence.abort()
    younger.abort()
    assert cache.audit() == []


def test_audit_names_slots_that_nobody_owns_any_more(cache):
    with cache.begin(range(8)) as sequence:
        sequence.reserve(8)
        sequence.commit(8)
        sequence.finish()
    lost = [*cache.pool.alloc(4).tolist(), *cache.tree.evict(4).tolist()]
    (nobody,) = cache.audit()
    assert (nobody["sequence"], nobody["begun_since"]) == (None, 0)
    assert nobody["slots"].tolist() == sorted(lost)
    cache.pool.free(lost)
    assert cache.audit() == []


def test_more_branches_than_any_pool_holds_are_refused_at_once():
    # In a process of its own, with a bound on its memory: what must not happen here takes for ever.
    code = """
import resource
from radix_rs import PrefixCache
from radix_rs.errors import CapacityError, InvalidInputError

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
cache = PrefixCache(32, 4)
sequence = cache.begin(range(6))
sequence.reserve(6)
sequence.commit(6)
for at in (6, 4, 0):
    for count in (2**20 + 1, 2**40, 2**63 - 1):
        try:
            sequence.fork(count, at=at)
        except (CapacityError, InvalidInputError):
            cache.check()
        else:
            raise AssertionError((at, count))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_disabled_cache_finds_and_publishes_nothing():
    cache = PrefixCache(32, 4, enabled=False)
    assert not cache.enabled
    for _ in range(2):
        with cache.begin(range(9)) as sequence:
            assert sequence.cached_len == 0
            sequence.reserve(9)
            sequence.commit(9)
            sequence.finish()
    assert cache.stats()["cached_tokens"] == 0
