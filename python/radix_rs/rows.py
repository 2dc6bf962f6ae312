"""Rows of slots, one per running request: what an engine hands to its attention kernels."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from radix_rs.errors import CapacityError, DoubleFreeError, InvalidInputError
from radix_rs.types import Slots

__all__ = ["RequestRows"]


class RequestRows:
    """A table of slots with one row per request, for ``PrefixCache.begin(..., out=rows[row])``.

    The lowest free row is taken first, so that equal runs use equal rows.

    Parameters
    ----------
    num_rows
        Requests that can run at once.
    max_len
        Tokens that a request can have.
    device_buffer
        An int32 array or tensor of the same shape ``[num_rows, max_len]`` that `sync` copies to,
        usually on a GPU. None: there is none, and `sync` is an error.

    Attributes
    ----------
    table : numpy.ndarray
        int32 ``[num_rows, max_len]``, zero at first. Rows keep what they held when they are given
        back.

    Raises
    ------
    InvalidInputError
        A size is not positive, or the device buffer has another shape.
    """

    def __init__(self, num_rows: int, max_len: int, *, device_buffer: Any = None) -> None:
        if num_rows < 1 or max_len < 1:
            raise InvalidInputError(f"num_rows={num_rows} and max_len={max_len} must be positive")
        self.table: Slots = np.zeros((num_rows, max_len), dtype=np.int32)
        self.device_buffer = device_buffer
        self._free = list(range(num_rows))
        self._taken: set[int] = set()
        self._source: Any = self.table
        if device_buffer is not None:
            shape = tuple(device_buffer.shape)
            if shape != self.table.shape:
                raise InvalidInputError(
                    f"device_buffer has shape {shape}, the table {self.table.shape}"
                )
            # A tensor is only filled from a tensor. Whoever made one has imported its library.
            library = sys.modules.get(type(device_buffer).__module__.partition(".")[0])
            if hasattr(library, "from_numpy"):
                self._source = library.from_numpy(self.table)  # type: ignore[union-attr]

    def __len__(self) -> int:
        """Rows, free or not."""
        return len(self.table)

    def __getitem__(self, row: int) -> Slots:
        """The row as a writable view, int32 ``[max_len]``."""
        view: Slots = self.table[row]
        return view

    @property
    def max_len(self) -> int:
        """Tokens that a row has room for."""
        return int(self.table.shape[1])

    @property
    def num_free(self) -> int:
        """Rows that can be taken."""
        return len(self._free)

    def take(self) -> int:
        """Take the lowest free row.

        Raises
        ------
        CapacityError
            Every row is taken; the numbers count rows.
        """
        if not self._free:
            raise CapacityError(needed=1, free=0)
        row = heapq.heappop(self._free)
        self._taken.add(row)
        return row

    def give(self, row: int) -> None:
        """Give a row back.

        Raises
        ------
        DoubleFreeError
            The row is free already.
        InvalidInputError
            There is no such row.
        """
        if not 0 <= row < len(self.table):
            raise InvalidInputError(f"there is no row {row}, only {len(self.table)}", None, row)
        if row not in self._taken:
            raise DoubleFreeError(row)
        self._taken.remove(row)
        heapq.heappush(self._free, row)

    def sync(self, rows: Iterable[int], start: int = 0, stop: int | None = None) -> None:
        """Copy columns ``[start, stop)`` of ``rows`` to the device buffer.

        Raises
        ------
        InvalidInputError
            There is no device buffer.
        """
        if self.device_buffer is None:
            raise InvalidInputError("these rows were made without a device_buffer")
        for row in rows:
            self.device_buffer[row, start:stop] = self._source[row, start:stop]
