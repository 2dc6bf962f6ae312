"""`RequestRows`."""

from __future__ import annotations

import numpy as np
import pytest
from radix_rs import PrefixCache, RequestRows
from radix_rs.errors import CapacityError, DoubleFreeError, InvalidInputError


def test_the_lowest_free_row_is_taken_first():
    rows = RequestRows(3, 8)
    assert [rows.take() for _ in range(3)] == [0, 1, 2]
    rows.give(2)
    rows.give(0)
    assert (rows.take(), rows.take(), rows.num_free) == (0, 2, 0)


def test_no_row_left_is_a_capacity_error():
    rows = RequestRows(1, 8)
    rows.take()
    with pytest.raises(CapacityError) as caught:
        rows.take()
    assert (caught.value.needed, caught.value.free) == (1, 0)


def test_a_row_is_given_back_once():
    rows = RequestRows(2, 8)
    row = rows.take()
    rows.give(row)
    with pytest.raises(DoubleFreeError):
        rows.give(row)
    for wrong in (-1, 2):
        with pytest.raises(InvalidInputError):
            rows.give(wrong)


def test_a_row_is_where_the_sequence_keeps_its_slots():
    rows = RequestRows(2, 8)
    cache = PrefixCache(16)
    cache.pool.alloc(3)
    row = rows.take()
    sequence = cache.begin([1, 2, 3, 4], out=rows[row])
    sequence.reserve(4)
    assert rows.table[row].tolist() == [3, 4, 5, 6, 0, 0, 0, 0]
    assert sequence.slots.ctypes.data == rows.table[row].ctypes.data


def test_sync_copies_what_is_named():
    buffer = np.zeros((2, 4), np.int32)
    rows = RequestRows(2, 4, device_buffer=buffer)
    rows.table[:] = 7
    rows.sync([1], 1, 3)
    assert buffer.tolist() == [[0, 0, 0, 0], [0, 7, 7, 0]]
    rows.sync(range(2))
    assert buffer.tolist() == [[7] * 4] * 2


def test_wrong_sizes_are_typed_errors():
    for sizes in ((0, 4), (4, 0)):
        with pytest.raises(InvalidInputError):
            RequestRows(*sizes)
    with pytest.raises(InvalidInputError, match="shape"):
        RequestRows(2, 4, device_buffer=np.zeros((4, 2), np.int32))
    with pytest.raises(InvalidInputError, match="without a device_buffer"):
        RequestRows(2, 4).sync([0])
