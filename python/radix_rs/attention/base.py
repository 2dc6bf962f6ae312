"""The contract between the model loop and whatever computes attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from radix_rs.memory import LayerShape

if TYPE_CHECKING:
    from radix_rs.attention.metadata import BatchMetadata


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """What is fixed about the attention of one layer of a model.

    Attributes
    ----------
    num_heads
        Query heads; a multiple of ``num_kv_heads``. Query head ``h`` reads K and V head
        ``h // (num_heads // num_kv_heads)``.
    num_kv_heads
        Heads of K and V.
    head_dim
        Size of one head of Q, K and V.
    scale
        Factor on the scores before anything else.
    window
        A token sees itself and the ``window - 1`` tokens before it; None: all before it.
    soft_cap
        Scores become ``soft_cap * tanh(scores / soft_cap)``; None: they stay.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    soft_cap: float | None = None

    def __post_init__(self) -> None:
        assert self.num_heads % self.num_kv_heads == 0, "query heads must fill K and V heads"
        assert self.window is None or self.window > 0, "a window holds at least the token itself"

    @property
    def group(self) -> int:
        """Query heads per K and V head."""
        return self.num_heads // self.num_kv_heads

    @property
    def shape(self) -> LayerShape:
        """What the layer stores per token."""
        return LayerShape(self.num_kv_heads, self.head_dim)


class AttentionBackend(Protocol):
    """Computes causal attention of a ragged batch over a KV pool.

    A backend is made for one model and one pool: it knows every :class:`AttentionLayer`, so that
    whatever depends only on the batch is worked out once per step in :meth:`plan` and shared by
    all layers. Between two plans :meth:`run` is called once per layer, in any order.

    **What a batch is.** ``num_requests`` requests with ``q_len[i] >= 1`` new tokens each, laid out
    one request after the other in ``num_tokens = sum(q_len)`` rows. Request ``i`` has
    ``kv_len[i] >= q_len[i]`` tokens in all; its new tokens are the last ``q_len[i]`` of them, and
    the ones before are its prefix, whose K and V are in the pool already. ``q_len = 1`` is a
    decode, anything else an extend (a prefill, if the prefix is empty); a batch may mix them.

    **What is computed.** New token number ``j`` of request ``i`` stands at position
    ``p = kv_len[i] - q_len[i] + j`` and sees positions ``max(0, p - window + 1) .. p`` of its own
    request. The result must not depend on where in the pool the slots lie, on the order of
    requests, or on what slots hold that the batch does not name (they may hold NaN).

    **What is written.** :meth:`run` stores K and V of the new tokens at ``new_slots`` before it
    reads the pool. Slots of different requests may be the same only in prefixes.

    **Concurrency.** One step at a time; a backend owns scratch memory that grows to the largest
    step it has seen.

    Errors are bugs of the caller here (``AssertionError``): user input has been checked before.
    """

    def plan(self, batch: BatchMetadata) -> None:
        """Prepare everything that the layers of one step share.

        Parameters
        ----------
        batch
            The layout of the step. Its arrays must stay unchanged until the next plan.
        """
        ...

    def run(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store K and V of the new tokens and return the attention of one layer.

        Parameters
        ----------
        layer
            Index of the layer in the pool.
        query
            ``[1, num_heads, num_tokens, head_dim]``, as the models of transformers give it; any
            strides with a contiguous last dimension.
        key, value
            ``[1, num_kv_heads, num_tokens, head_dim]``; likewise, dtype of ``query``.

        Returns
        -------
        Tensor
            ``[1, num_tokens, num_heads, head_dim]`` of the dtype of ``query``, as the models take
            it back.
        """
        ...
