"""Attention in plain torch: gather, then scaled dot product attention.

What was measured shapes it (torch 2.15 on a CPU): a gather into memory that is there already
is three to six times faster than one into a fresh tensor, and none at all is needed where slots
are consecutive; in bfloat16 grouped heads must be part of the query length or of the batch, never
``enable_gqa``, which is ten times slower; ``is_causal`` is aligned to the top left, so it is right
only where the prefix is empty; and with a small model every call of a tensor operation counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  (its usual name)
from torch import Tensor

from radix_rs.attention.base import AttentionLayer
from radix_rs.attention.dense import attend, attend_split
from radix_rs.attention.mask import BlockMasks
from radix_rs.attention.metadata import BatchMetadata
from radix_rs.attention.work import Group, Planner, Prefill, Run, StepWork
from radix_rs.memory import KVPool


class ReferenceBackend:
    """The backend that every other one is measured against; see :class:`AttentionBackend`.

    Parameters
    ----------
    layers
        The layers of the model, in the order of the pool.
    pool
        Where K and V live.
    dtype
        What the model computes in.
    """

    def __init__(
        self, layers: Sequence[AttentionLayer], pool: KVPool, dtype: torch.dtype = torch.float32
    ) -> None:
        assert tuple(layer.shape for layer in layers) == pool.layers, "pool of another model"
        self._layers = tuple(layers)
        self._pool = pool
        self._dtype = dtype
        self._converts = dtype != pool.dtype
        self._windows = {layer.window for layer in layers}
        self._masks = {window: BlockMasks(window, dtype, pool.device) for window in self._windows}
        row_size = max(shape.row_size for shape in pool.layers)
        self._planner = Planner(
            dtype,
            pool.device,
            row_size * pool.dtype.itemsize,
            splits=pool.device.type == "cpu" and all(one.soft_cap is None for one in layers),
        )
        self._scratch: dict[str, Tensor] = {}
        # Of the step that was planned last:
        self._work: dict[int | None, StepWork] = {}
        self._new_slots = torch.empty(0, dtype=torch.int64)
        self._new_run: int | None = None
        self._num_tokens = 0

    def plan(self, batch: BatchMetadata) -> None:
        """Work out groups, slot indices and masks once for each window of the model."""
        self._num_tokens = batch.num_tokens
        self._new_run = batch.new_run
        if self._new_run is None:
            self._new_slots = torch.from_numpy(batch.new_slots).to(self._pool.device)
        longest = max(batch.kv_lens)
        plans: dict[int | None, StepWork] = {}
        for window in self._windows:
            # A window that nothing reaches is no window: layers of both kinds share one plan.
            effective = None if window is None or window >= longest else window
            if effective not in plans:
                plans[effective] = self._planner.plan(batch, effective)
            self._work[window] = plans[effective]

    def run(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store the new K and V, then attend."""
        spec = self._layers[layer]
        assert query.shape[2] == self._num_tokens, "the plan is of another step"
        self._store(layer, key, value)
        work = self._work[spec.window]
        group = work.only_group
        if group is not None:
            result = self._attend_group(layer, spec, group, query)
            return result.view(1, self._num_tokens, spec.num_heads, spec.head_dim)
        if work.is_plain_prefill and spec.soft_cap is None:
            return self._attend_plain(spec, query, key, value)
        if work.is_runs:
            result = self._attend_runs(layer, spec, work.runs, query)
            return result.view(1, self._num_tokens, spec.num_heads, spec.head_dim)
        return self._attend_parts(layer, spec, work, query, key, value)

    def _attend_parts(
        self,
        layer: int,
        spec: AttentionLayer,
        work: StepWork,
        query: Tensor,
        key: Tensor,
        value: Tensor,
    ) -> Tensor:
        """Attend a mixed batch: its parts are picked and put back by row."""
        out = query.new_empty((self._num_tokens, spec.num_heads, spec.head_dim))
        by_row = query[0].transpose(0, 1)
        for group in work.groups:
            picked = by_row[group.rows].transpose(0, 1)[None]
            result = self._attend_group(layer, spec, group, picked)
            result = result.view(-1, spec.num_heads, spec.head_dim)
            rows = group.rows
            assert rows is not None, "a part of a batch names its rows"
            if group.valid is not None:
                rows, result = rows[group.valid], result[group.valid]
            out.index_copy_(0, rows, result)
        if work.runs:
            result = self._attend_runs(layer, spec, work.runs, query)
            for run, row in zip(work.runs, result.unbind(), strict=True):
                out[run.row].view(row.shape).copy_(row)
        for prefill in work.prefills:
            self._attend_prefill(layer, spec, prefill, query, key, value, out)
        return out[None]

    def _store(self, layer: int, key: Tensor, value: Tensor) -> None:
        if self._new_run is None:
            self._pool.store(
                layer, self._new_slots, key[0].transpose(0, 1), value[0].transpose(0, 1)
            )
            return
        count = self._num_tokens
        self._pool.keys_by_head[layer].narrow(2, self._new_run, count).copy_(key)
        self._pool.values_by_head[layer].narrow(2, self._new_run, count).copy_(value)

    def _attend_group(
        self, layer: int, spec: AttentionLayer, group: Group, query: Tensor
    ) -> Tensor:
        """Attend a padded group: query heads of one K and V head become rows of it.

        ``query`` is ``[1, num_heads, size * num_rows, head_dim]``; the result has the elements of
        ``[size * num_rows, num_heads, head_dim]`` in this order.
        """
        size, rows, heads, per_head = group.size, group.num_rows, spec.num_kv_heads, spec.group
        key, value = self._gather(layer, group.slots, size)
        mask = group.mask
        if rows == 1:
            folded = query.view(heads, per_head, size, spec.head_dim).permute(2, 0, 1, 3)
            return attend(folded, key, value, mask, spec).contiguous()
        folded = query.view(heads, per_head, size, rows, spec.head_dim).permute(2, 0, 3, 1, 4)
        folded = folded.reshape(size, heads, rows * per_head, spec.head_dim)
        if mask is not None and per_head > 1:
            mask = mask.repeat_interleave(per_head, dim=2)
        result = attend(folded, key, value, mask, spec)
        result = result.reshape(size, heads, rows, per_head, spec.head_dim)
        return result.transpose(1, 2).contiguous()

    def _attend_runs(
        self, layer: int, spec: AttentionLayer, runs: Sequence[Run], query: Tensor
    ) -> Tensor:
        """Attend decodes over consecutive slots, each by itself and without a gather.

        The result is ``[len(runs), num_kv_heads, num_heads / num_kv_heads, head_dim]``.
        """
        by_row = query.view(spec.num_kv_heads, spec.group, -1, spec.head_dim)
        rows = by_row.permute(2, 0, 1, 3).split(1)
        results = []
        for run in runs:
            key, value = self._view(layer, run.start, run.num_slots)
            results.append(attend(rows[run.row], key, value, None, spec))
        return results[0].contiguous() if len(results) == 1 else torch.cat(results)

    def _attend_plain(
        self, spec: AttentionLayer, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """Attend a batch that is one prefill without a prefix: nothing is picked or put back."""
        if self._converts:
            key, value = (one.to(self._pool.dtype).to(self._dtype) for one in (key, value))
        if spec.group > 1 and self._dtype != torch.float32:
            shared = (spec.group, -1, -1, -1)
            query = query.view(spec.num_kv_heads, spec.group, -1, spec.head_dim).transpose(0, 1)
            result = F.scaled_dot_product_attention(
                query, key.expand(shared), value.expand(shared), is_causal=True, scale=spec.scale
            )
            result = result.permute(2, 1, 0, 3)
            return result.reshape(1, -1, spec.num_heads, spec.head_dim)
        result = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=spec.scale, enable_gqa=spec.group > 1
        )
        return result.transpose(1, 2)

    def _attend_prefill(
        self,
        layer: int,
        spec: AttentionLayer,
        prefill: Prefill,
        query: Tensor,
        new_key: Tensor,
        new_value: Tensor,
        out: Tensor,
    ) -> None:
        """Attend one long extend: query heads of one K and V head become a batch that shares it."""
        rows = slice(prefill.row, prefill.row + prefill.q_len)
        shared = (spec.group, -1, -1, -1)
        folded = query[0, :, rows].view(spec.num_kv_heads, spec.group, prefill.q_len, spec.head_dim)
        folded = folded.transpose(0, 1)
        target = out[rows].view(prefill.q_len, spec.num_kv_heads, spec.group, spec.head_dim)
        # K and V of new tokens are at hand, as the pool would give them back.
        key, value = new_key[:, :, rows].expand(shared), new_value[:, :, rows].expand(shared)
        if self._converts:
            key, value = (one.to(self._pool.dtype).to(self._dtype) for one in (key, value))
        if prefill.num_slots:
            old_key, old_value = (
                self._view(layer, prefill.run, prefill.num_slots)
                if prefill.slots is None
                else self._gather(layer, prefill.slots, 1)
            )
            old_key, old_value = old_key.expand(shared), old_value.expand(shared)
        if prefill.blocks is None:
            result = (
                attend_split(folded, old_key, old_value, key, value, spec.scale)
                if prefill.num_slots
                else F.scaled_dot_product_attention(
                    folded, key, value, is_causal=True, scale=spec.scale
                )
            )
            target.copy_(result.permute(2, 1, 0, 3))
            return
        if prefill.num_slots:
            key, value = old_key, old_value
        masks = self._masks[spec.window]
        for block in prefill.blocks:
            rows = slice(block.q_start, block.q_stop)
            columns = slice(block.kv_start, block.kv_stop)
            mask = masks.get(block.q_stop - block.q_start, block.kv_stop - block.kv_start)
            result = attend(
                folded[:, :, rows], key[:, :, columns], value[:, :, columns], mask, spec
            )
            target[rows].copy_(result.permute(2, 1, 0, 3))

    def _view(self, layer: int, start: int | None, num_slots: int) -> tuple[Tensor, Tensor]:
        """Return K and V of consecutive slots where they are."""
        assert start is not None, "slots without an index are a run"
        key = self._pool.keys_by_head[layer].narrow(2, start, num_slots)
        value = self._pool.values_by_head[layer].narrow(2, start, num_slots)
        return self._converted(key, value) if self._converts else (key, value)

    def _gather(self, layer: int, slots: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return K and V of slots as ``[size, num_kv_heads, num_slots / size, head_dim]``."""
        shape = self._pool.layers[layer]
        key = self._buffer("key", slots.shape[0], shape.row_size)
        value = self._buffer("value", slots.shape[0], shape.row_size)
        self._pool.gather(layer, slots, key, value)
        view = (size, -1, shape.num_kv_heads, shape.head_dim)
        return self._converted(key.view(view).transpose(1, 2), value.view(view).transpose(1, 2))

    def _converted(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return (key.to(self._dtype), value.to(self._dtype)) if self._converts else (key, value)

    def _buffer(self, name: str, num_rows: int, row_size: int) -> Tensor:
        """Return scratch memory ``[num_rows, row_size]`` that stays for the next step."""
        needed = num_rows * row_size
        buffer = self._scratch.get(name)
        if buffer is None or buffer.numel() < needed:
            size = max(needed, 2 * buffer.numel() if buffer is not None else 0)
            buffer = torch.empty(size, dtype=self._pool.dtype, device=self._pool.device)
            self._scratch[name] = buffer
        return buffer[:needed].view(num_rows, row_size)
