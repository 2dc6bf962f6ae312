"""The cache and its sequences against the reference, step by step."""

from __future__ import annotations

import machines
import numpy as np
import pytest
import radix_rs


class CacheAgainstReference(machines.PrefixCacheMachine):
    """The package's cache is the system under test."""

    system = radix_rs


TestEveryStepAgreesWithTheReference = CacheAgainstReference.TestCase


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_lowest_free_pages_are_handed_out_first_at_rest(page_size: int) -> None:
    cache = radix_rs.PrefixCache(8 * page_size, page_size, enabled=False)
    sequences = [cache.begin([]) for _ in range(8)]
    for page, sequence in enumerate(sequences):
        sequence.reserve(page_size)
        assert sequence.page_table.tolist() == [page]
    for page in (6, 1, 3):
        sequences[page].abort()
    late = cache.begin([])
    late.reserve(2 * page_size)
    assert late.page_table.tolist() == [1, 3]


def test_evicted_slots_go_to_the_caller_who_had_them_evicted() -> None:
    cache = radix_rs.PrefixCache(8, 4)
    old = cache.begin([1, 2, 3, 4, 5])
    old.reserve(5)
    old.commit(5)
    old.finish()
    assert cache.stats()["num_free"] == 4
    new = cache.begin([9])
    slots = new.reserve(8)
    assert sorted(slots.tolist()) == list(range(8))
    assert cache.tree.cached_tokens == 0
    assert cache.stats()["evicted_tokens"] == 4


def test_both_requests_that_computed_a_page_read_one_copy_afterwards() -> None:
    cache = radix_rs.PrefixCache(16, 1)
    first, second = cache.begin([1, 2, 3, 4]), cache.begin([1, 2, 3, 5])
    first.reserve(4)
    second.reserve(4)
    own = second.slots.tolist()
    assert first.commit(4) == (4, 4)
    assert second.commit(4) == (0, 3)
    assert second.slots.tolist() == [*first.slots.tolist()[:3], own[3]]
    # The three duplicates are free again, the own slot is not.
    assert cache.pool.num_free == 16 - 5


def test_a_failed_reserve_changes_nothing() -> None:
    cache = radix_rs.PrefixCache(16, 4)
    old = cache.begin(list(range(9)))
    old.reserve(9)
    old.commit(9)
    old.finish()
    user = cache.begin(list(range(5)))
    before = cache.stats()
    with pytest.raises(radix_rs.errors.CapacityError) as error:
        user.reserve(13)
    numbers = error.value
    assert (numbers.needed, numbers.free, numbers.evictable, numbers.protected) == (16, 8, 4, 4)
    assert cache.stats() == before
    assert user.num_reserved == 4
    assert np.array_equal(user.reserve(12)[:0], np.zeros(0, dtype=np.int32))
    assert cache.pool.num_free == 0


def test_a_fork_in_the_middle_of_a_page_names_the_slots_to_copy() -> None:
    cache = radix_rs.PrefixCache(64, 4)
    parent = cache.begin(list(range(10)))
    parent.reserve(10)
    parent.commit(10)
    (child,) = parent.fork(at=6)
    row = parent.slots.tolist()
    assert child.slots.tolist()[:4] == row[:4]
    assert child.copies.tolist() == [[row[4], child.slots[4]], [row[5], child.slots[5]]]
    assert not set(child.slots.tolist()[4:]) & set(row)
    assert (child.num_computed, child.cached_len, child.num_published) == (6, 4, 4)


def test_slots_given_back_after_a_fence_wait_for_it() -> None:
    cache = radix_rs.PrefixCache(4, 1, enabled=False)
    running, step = cache.begin([1]), cache.fence()
    running.reserve(4)
    running.finish(after=step)
    assert cache.stats()["waiting_tokens"] == 4
    waiting = cache.begin([2])
    with pytest.raises(radix_rs.errors.CapacityError):
        waiting.reserve(1)
    cache.signal(step)
    cache.signal(step)
    assert waiting.reserve(4).tolist() == [0, 1, 2, 3]
