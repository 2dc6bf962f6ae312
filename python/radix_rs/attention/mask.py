"""Additive masks for blocks of extends, all cut from one buffer per window."""

from __future__ import annotations

import torch
from torch import Tensor

# Rows of one block. Larger blocks waste scores above the diagonal, smaller ones cost calls.
BLOCK_ROWS = 256


class BlockMasks:
    """Bottom-right aligned causal masks, with an optional sliding window.

    Whether row ``i`` of a block sees column ``j`` depends only on how far both are from the lower
    right corner. So the mask of every block of any request is the lower right part of one buffer,
    which is made once and only grows.

    Parameters
    ----------
    window
        Tokens that a token sees, itself included; None for all.
    dtype, device
        Of the masks.
    """

    def __init__(self, window: int | None, dtype: torch.dtype, device: torch.device) -> None:
        self._window = window
        self._dtype = dtype
        self._device = device
        self._buffer = self._make(BLOCK_ROWS)

    def _make(self, num_columns: int) -> Tensor:
        row = torch.arange(BLOCK_ROWS, device=self._device)[:, None]
        column = torch.arange(num_columns, device=self._device)[None, :]
        ahead = column - (num_columns - BLOCK_ROWS) - row
        hidden = ahead > 0
        if self._window is not None:
            hidden |= ahead <= -self._window
        mask = torch.zeros(BLOCK_ROWS, num_columns, dtype=self._dtype, device=self._device)
        return mask.masked_fill_(hidden, float("-inf"))

    def get(self, num_rows: int, num_columns: int) -> Tensor:
        """Return a view ``[num_rows, num_columns]`` of zeros and minus infinities.

        The last row belongs to the token that stands at the last column.
        """
        assert num_rows <= BLOCK_ROWS, f"{num_rows} rows in a block of {BLOCK_ROWS}"
        if num_columns > self._buffer.shape[1]:
            self._buffer = self._make(max(num_columns, 2 * self._buffer.shape[1]))
        return self._buffer[BLOCK_ROWS - num_rows :, self._buffer.shape[1] - num_columns :]
