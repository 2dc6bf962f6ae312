"""The work of one step for one window, worked out once and shared by all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from radix_rs.attention.grouping import MANY_DECODES, RUN_BYTES, is_small, pack
from radix_rs.attention.mask import BLOCK_ROWS
from radix_rs.attention.metadata import BatchMetadata


@dataclass(slots=True)
class Group:
    """Small requests, padded to the same number of rows and of slots.

    Attributes
    ----------
    size, num_rows, num_slots
        Requests, and rows and slots of each after padding.
    rows
        int64 ``[size * num_rows]``: rows of the batch; padding repeats a request's first row.
        None if the group is the whole batch in its order.
    valid
        bool, likewise: which of them are no padding; None if all.
    slots
        int32 ``[size * num_slots]``: padding repeats a request's first slot, never a foreign one.
    mask
        ``[size, 1, num_rows, num_slots]``, added to the scores; None if every row sees all.
    """

    size: int
    num_rows: int
    num_slots: int
    rows: Tensor | None
    valid: Tensor | None
    slots: Tensor
    mask: Tensor | None


class Run(NamedTuple):
    """A decode over consecutive slots: row ``row`` sees ``num_slots`` slots from ``start`` on."""

    row: int
    start: int
    num_slots: int


@dataclass(frozen=True, slots=True)
class Block:
    """Rows ``q_start .. q_stop`` of an extend, and the columns of its K that they can see."""

    q_start: int
    q_stop: int
    kv_start: int
    kv_stop: int


@dataclass(slots=True)
class Prefill:
    """One long extend.

    Attributes
    ----------
    row, q_len
        Its rows in the batch.
    num_slots
        Slots that are read from the pool; 0 if there is no prefix, since K and V of new tokens
        are at hand.
    slots
        int32 ``[num_slots]``; None if they are consecutive.
    run
        The first slot, if they are consecutive.
    blocks
        How rows and slots are cut; None if every row sees all ``num_slots`` slots, and of the new
        tokens those before it.
    """

    row: int
    q_len: int
    num_slots: int
    slots: Tensor | None
    run: int | None
    blocks: list[Block] | None


@dataclass(slots=True)
class StepWork:
    """What a step consists of for one window: runs, groups and prefills."""

    runs: list[Run] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    prefills: list[Prefill] = field(default_factory=list)

    @property
    def only_group(self) -> Group | None:
        """The one group that is the batch as it stands, if there is one."""
        group = self.groups[0] if self.groups else None
        return group if group is not None and group.rows is None else None

    @property
    def is_plain_prefill(self) -> bool:
        """Whether there is one prefill only, with neither prefix nor window."""
        if self.runs or self.groups or len(self.prefills) != 1:
            return False
        return self.prefills[0].num_slots == 0 and self.prefills[0].blocks is None

    @property
    def is_runs(self) -> bool:
        """Whether there are runs only; they are in the order of the batch then."""
        return not self.groups and not self.prefills


class Planner:
    """Cuts a step into groups and prefills.

    Parameters
    ----------
    dtype, device
        Of the masks; indices go to the same device.
    row_bytes
        Bytes of one row of K, to weigh a call against a gather.
    splits
        Whether prefix and new tokens of an extend can be attended apart and merged.
    """

    def __init__(
        self, dtype: torch.dtype, device: torch.device, row_bytes: int, *, splits: bool
    ) -> None:
        self._splits = splits
        self._dtype = dtype
        self._device = device
        threads = torch.get_num_threads()
        self._run_length = -(-RUN_BYTES * threads // row_bytes)
        self._shares_calls = threads > 1

    def plan(self, batch: BatchMetadata, window: int | None) -> StepWork:
        """Return the work of a step, for layers with this window (None: they see all)."""
        q_lens = batch.q_lens
        # The first position that any new token of the request sees, and how many from it on.
        if window is None:
            starts: Sequence[int] = (0,) * len(q_lens)
            visible: Sequence[int] = batch.kv_lens
        else:
            starts = [
                max(0, kv - q - window + 1) for q, kv in zip(q_lens, batch.kv_lens, strict=True)
            ]
            visible = [kv - start for kv, start in zip(batch.kv_lens, starts, strict=True)]
        run_length = self._run_length
        if self._shares_calls:
            # Several threads share one call over many requests better than many calls.
            run_length *= max(1, q_lens.count(1) // MANY_DECODES)
        work = StepWork()
        small: list[int] = []
        row = 0
        for i, (q_len, length) in enumerate(zip(q_lens, visible, strict=True)):
            if q_len == 1:
                # Alone, any run is worth it: there is no group that it could join.
                is_long = length >= run_length or len(q_lens) == 1
                run = batch.run(i, starts[i], batch.kv_lens[i]) if is_long else None
                if run is None:
                    small.append(i)
                else:
                    work.runs.append(Run(row, run, length))
            elif is_small(q_len, length):
                small.append(i)
            else:
                work.prefills.append(self._prefill(batch, i, row, starts[i], window))
            row += q_len
        for members in pack(small, q_lens, visible):
            work.groups.append(self._group(batch, members, starts, visible, window))
        return work

    def _group(
        self,
        batch: BatchMetadata,
        members: list[int],
        starts: Sequence[int],
        visible: Sequence[int],
        window: int | None,
    ) -> Group:
        size = len(members)
        num_rows = max([batch.q_lens[i] for i in members])
        num_slots = max([visible[i] for i in members])
        index = np.empty((size, num_slots), np.int32)
        for padded, i in zip(index, members, strict=True):
            length = visible[i]
            own = batch.spans[i].slots[starts[i] : batch.kv_lens[i]]
            padded[:length] = own
            if length < num_slots:
                padded[length:] = own[0]
        rows, valid, mask = self._rows(batch, members, num_rows, num_slots, visible, window)
        return Group(size, num_rows, num_slots, rows, valid, self._tensor(index.reshape(-1)), mask)

    def _rows(
        self,
        batch: BatchMetadata,
        members: list[int],
        num_rows: int,
        num_slots: int,
        visible: Sequence[int],
        window: int | None,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return rows, validity and mask of a group."""
        is_whole = len(members) == batch.num_requests and batch.num_tokens == (
            len(members) * num_rows
        )
        rows = valid = None
        q_lens = np.array([batch.q_lens[i] for i in members])[:, None]
        row = np.minimum(np.arange(num_rows), q_lens - 1) if num_rows > 1 else q_lens - 1
        if not is_whole:
            is_padding = np.arange(num_rows) >= q_lens
            first = batch.qo_indptr[:-1][members].astype(np.int64)[:, None]
            rows = self._tensor((first + row).reshape(-1))
            valid = self._tensor(~is_padding.reshape(-1)) if is_padding.any() else None
        # Positions count from the first visible one: a row sees lower <= position < upper.
        lengths = np.array([visible[i] for i in members])[:, None]
        upper = lengths - q_lens + row + 1
        lower = None if window is None else upper - window
        if int(upper.min()) == num_slots and (lower is None or int(lower.max()) <= 0):
            return rows, valid, None
        column = np.arange(num_slots)
        seen = column < upper[:, :, None]
        if lower is not None:
            seen &= column >= lower[:, :, None]
        mask = np.where(seen, np.float32(0), np.float32(-np.inf))[:, None]
        return rows, valid, self._tensor(mask).to(self._dtype)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _prefill(
        self, batch: BatchMetadata, i: int, row: int, start: int, window: int | None
    ) -> Prefill:
        q_len, kv_len = batch.q_lens[i], batch.kv_lens[i]
        prefix = kv_len - q_len
        blocks = None
        stop = prefix
        if window is not None or not self._splits:
            blocks = []
            for q_start in range(0, q_len, BLOCK_ROWS):
                q_stop = min(q_start + BLOCK_ROWS, q_len)
                first = 0 if window is None else max(0, prefix + q_start - window + 1)
                blocks.append(Block(q_start, q_stop, first - start, prefix + q_stop - start))
            stop = kv_len if prefix else 0
        run = batch.run(i, start, stop)
        slots = None
        if run is None and stop:
            slots = self._tensor(np.array(batch.spans[i].slots[start:stop]))
        return Prefill(row, q_len, max(0, stop - start), slots, run, blocks)
