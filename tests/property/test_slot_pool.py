"""The pool alone against the reference, step by step."""

from __future__ import annotations

import machines
import pytest
import radix_rs


class PoolAgainstReference(machines.SlotPoolMachine):
    """The package's pool is the system under test."""

    system = radix_rs


TestEveryStepAgreesWithTheReference = PoolAgainstReference.TestCase


@pytest.mark.parametrize("page_size", [1, 4, 1024])
def test_a_second_free_names_the_slot_and_changes_nothing(page_size: int) -> None:
    pool = radix_rs.SlotPool(4 * page_size, page_size)
    slots = pool.alloc(4 * page_size)
    second = slots[page_size : 2 * page_size]
    pool.free(second)
    with pytest.raises(radix_rs.errors.DoubleFreeError) as error:
        pool.free(slots[: 2 * page_size])
    assert error.value.slot == page_size
    assert pool.num_free == page_size
    assert pool.alloc(1).tolist() == second.tolist()


@pytest.mark.parametrize(
    ("num_slots", "page_size"), [(0, 1), (10, 4), (-4, 4), (12, 3), (2048, 2048)]
)
def test_sizes_that_cannot_be_are_refused(num_slots: int, page_size: int) -> None:
    with pytest.raises((radix_rs.errors.InvalidInputError, OverflowError)):
        radix_rs.SlotPool(num_slots, page_size)
