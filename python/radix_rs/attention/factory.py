"""One place that knows the names of the backends; each is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from radix_rs.attention.base import AttentionBackend, AttentionLayer
from radix_rs.errors import InvalidInputError
from radix_rs.memory import KVPool

BACKENDS = ("reference",)


def make_backend(
    name: str, layers: Sequence[AttentionLayer], pool: KVPool, dtype: torch.dtype
) -> AttentionBackend:
    """Return the backend of that name.

    Parameters
    ----------
    name
        One of ``BACKENDS``, or ``"auto"`` for the best one on the pool's device.
    layers
        The layers of the model, in the order of the pool.
    pool
        Where K and V live.
    dtype
        What the model computes in; the pool may store another one.

    Raises
    ------
    InvalidInputError
        For every other name.
    """
    if name in ("auto", "reference"):
        from radix_rs.attention.reference import ReferenceBackend

        return ReferenceBackend(layers, pool, dtype)
    raise InvalidInputError(f"attention backend {name!r} is not one of auto, {', '.join(BACKENDS)}")
