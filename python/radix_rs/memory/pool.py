"""The KV pool: for each layer one row of K and one of V per slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from radix_rs.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer stores per token: ``num_kv_heads`` vectors of ``head_dim`` for K and for V."""

    num_kv_heads: int
    head_dim: int

    @property
    def row_size(self) -> int:
        """Numbers in one row, K or V."""
        return self.num_kv_heads * self.head_dim


class KVPool:
    """K and V of every slot of every layer.

    The pool knows nothing of requests: who owns a slot is decided by the cache that hands slots
    out. Memory is asked for zeroed, which costs nothing before a page of it is touched.

    Parameters
    ----------
    layers
        One shape per layer; they may differ.
    num_slots
        Tokens that the pool holds.
    dtype
        float32, bfloat16 or float16.
    device
        Where the tensors live.

    Attributes
    ----------
    keys, values
        One tensor per layer, ``[num_slots, num_kv_heads, head_dim]``, contiguous.
    keys_by_head, values_by_head
        The same memory as ``[1, num_kv_heads, num_slots, head_dim]``, as attention wants it.

    Raises
    ------
    InvalidInputError
        If there is no layer or no slot.
    """

    def __init__(
        self,
        layers: Sequence[LayerShape],
        num_slots: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if not layers or num_slots < 1:
            raise InvalidInputError(
                f"a KV pool needs layers and slots, not {len(layers)} layers, {num_slots} slots"
            )
        self.layers = tuple(layers)
        self.num_slots = num_slots
        self.dtype = dtype
        self.device = torch.device(device)
        self.keys: list[Tensor] = [self._allocate(shape) for shape in self.layers]
        self.values: list[Tensor] = [self._allocate(shape) for shape in self.layers]
        self.keys_by_head = [tensor.transpose(0, 1)[None] for tensor in self.keys]
        self.values_by_head = [tensor.transpose(0, 1)[None] for tensor in self.values]
        # The same memory with heads and head size flat: gathers move whole rows.
        self._key_rows = [tensor.view(num_slots, -1) for tensor in self.keys]
        self._value_rows = [tensor.view(num_slots, -1) for tensor in self.values]

    def _allocate(self, shape: LayerShape) -> Tensor:
        size = (self.num_slots, shape.num_kv_heads, shape.head_dim)
        return torch.zeros(size, dtype=self.dtype, device=self.device)

    @property
    def bytes_per_token(self) -> int:
        """K and V of one token over all layers, in bytes."""
        return bytes_per_token(self.layers, self.dtype)

    @property
    def size_bytes(self) -> int:
        """The whole pool, in bytes."""
        return self.num_slots * self.bytes_per_token

    def used_bytes(self, num_tokens: int) -> int:
        """Return the bytes that ``num_tokens`` slots in use hold."""
        return num_tokens * self.bytes_per_token

    def contiguous_bytes(self, lengths: Iterable[int]) -> int:
        """Return the bytes that one contiguous cache per request would hold.

        Parameters
        ----------
        lengths
            Tokens of each request, its shared prefix included.
        """
        return sum(lengths) * self.bytes_per_token

    def store(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Write K and V of new tokens.

        Parameters
        ----------
        layer
            Index into ``layers``.
        slots
            int64 ``[num_tokens]``, without duplicates.
        key, value
            ``[num_tokens, num_kv_heads, head_dim]``, of any dtype and strides.
        """
        self.keys[layer].index_copy_(0, slots, key.to(self.dtype))
        self.values[layer].index_copy_(0, slots, value.to(self.dtype))

    def gather(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Read K and V of slots into buffers of the caller.

        Parameters
        ----------
        layer
            Index into ``layers``.
        slots
            int32 or int64 ``[num_tokens]``; a slot may occur more than once.
        key, value
            Outputs, ``[num_tokens, num_kv_heads * head_dim]`` of the pool's dtype, contiguous.
        """
        torch.index_select(self._key_rows[layer], 0, slots, out=key)
        torch.index_select(self._value_rows[layer], 0, slots, out=value)

    def copy(self, sources: Tensor, destinations: Tensor) -> None:
        """Copy rows from slot to slot in every layer: what a fork in the middle of a page needs.

        Parameters
        ----------
        sources, destinations
            int64 ``[num_tokens]``; the two sets must not overlap.
        """
        for rows in (*self._key_rows, *self._value_rows):
            rows.index_copy_(0, destinations, rows.index_select(0, sources))


def bytes_per_token(layers: Iterable[LayerShape], dtype: torch.dtype) -> int:
    """Return the bytes that K and V of one token take over all layers."""
    return 2 * sum(shape.row_size for shape in layers) * dtype.itemsize
