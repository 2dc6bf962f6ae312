"""The layout of one step: which tokens of which requests are computed, and where their KV lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]


class Span(NamedTuple):
    """The part ``start .. stop`` of a request that a step computes.

    Attributes
    ----------
    slots
        int32, one slot per position; at least ``stop`` of them.
    start, stop
        Positions in the request; K and V of all positions before ``start`` exist.
    run_length
        How many leading slots are known to be consecutive and ascending; attention reads them in
        place if that covers the request. Too little is only slower.
    """

    slots: Int32Array
    start: int
    stop: int
    run_length: int = 0


@dataclass(frozen=True)
class BatchMetadata:
    """A ragged batch, extend and decode mixed. All arrays live on the host.

    What every backend needs is there at once, the rest is worked out when it is asked for: a
    decode step of a small model lasts about a millisecond, and an array costs a microsecond.

    Attributes
    ----------
    spans
        What is computed, one span per request.
    q_lens, kv_lens
        New tokens, and all tokens, of each request.
    new_slots
        int64 ``[num_tokens]``: where K and V of each row go.
    positions
        int64 ``[num_tokens]``: the position of each row in its request.
    """

    spans: tuple[Span, ...]
    q_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]
    new_slots: Int64Array
    positions: Int64Array

    @classmethod
    def of(cls, spans: Sequence[Span]) -> BatchMetadata:
        """Return the layout of a step that computes these spans, in this order."""
        assert spans, "a step has at least one span"
        q_lens = tuple([span.stop - span.start for span in spans])
        assert min(q_lens) > 0, "a span has at least one token"
        if sum(q_lens) == len(spans):  # all decode
            positions = np.array([span.start for span in spans], np.int64)
            new_slots = np.array([span.slots[span.start] for span in spans], np.int64)
        else:
            positions = np.concatenate([np.arange(span.start, span.stop) for span in spans])
            new_slots = np.concatenate(
                [span.slots[span.start : span.stop] for span in spans], dtype=np.int64
            )
        return cls(
            spans=tuple(spans),
            q_lens=q_lens,
            kv_lens=tuple([span.stop for span in spans]),
            new_slots=new_slots,
            positions=positions,
        )

    @property
    def num_requests(self) -> int:
        """Requests in the batch."""
        return len(self.spans)

    @property
    def num_tokens(self) -> int:
        """Rows: new tokens of all requests."""
        return len(self.positions)

    @property
    def new_run(self) -> int | None:
        """The first new slot, if all new slots are known to be consecutive."""
        if self.num_tokens == 1:
            return int(self.new_slots[0])
        if self.num_requests == 1:
            return self.run(0, self.kv_lens[0] - self.q_lens[0], self.kv_lens[0])
        return None

    def run(self, request: int, start: int, stop: int) -> int | None:
        """Return the slot of position ``start``, if slots are known consecutive up to ``stop``."""
        span = self.spans[request]
        return int(span.slots[0]) + start if span.run_length >= stop else None

    @cached_property
    def qo_indptr(self) -> Int32Array:
        """int32 ``[num_requests + 1]``: rows of request ``i`` are ``[i] .. [i + 1]``."""
        return _indptr(self.q_lens)

    @cached_property
    def kv_indptr(self) -> Int32Array:
        """int32 ``[num_requests + 1]``, likewise for ``kv_indices``."""
        return _indptr(self.kv_lens)

    @cached_property
    def kv_indices(self) -> Int32Array:
        """int32 ``[sum(kv_lens)]``: the slots of all requests in one array, by ``kv_indptr``."""
        return np.concatenate([span.slots[: span.stop] for span in self.spans])


def _indptr(lengths: Sequence[int]) -> Int32Array:
    indptr = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=indptr[1:])
    return indptr
