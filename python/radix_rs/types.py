"""What arguments may be: the type aliases that the signatures of the package use."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ArrayInterface", "DLPack", "IntArray", "Namespace", "Slots", "WritableSlots"]


class DLPack(Protocol):
    """A tensor that speaks DLPack, such as a PyTorch tensor on the host."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Describe the tensor."""
        ...


class ArrayInterface(Protocol):
    """An array that speaks NumPy's ``__array_interface__``."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Describe the array."""
        ...


class Buffer(Protocol):
    """An object with a buffer: ``array.array``, ``memoryview``."""

    # `collections.abc.Buffer` needs Python 3.12; what these two classes share is their length.
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


IntArray: TypeAlias = NDArray[np.integer[Any]] | DLPack | ArrayInterface | Buffer
"""One-dimensional integers: token ids or slots.

int32, int64, uint32 or uint64 in native byte order are read where they lie, from NumPy arrays,
tensors on the host, ``array.array`` and ``memoryview``. Lists, tuples and ranges of int are
converted first.
"""

Slots: TypeAlias = NDArray[np.int32]
"""Slots, one per token: int32, ``[num_tokens]``."""

WritableSlots: TypeAlias = NDArray[np.int32] | DLPack | Buffer
"""Where slots are written to: int32, contiguous, writable, on the host, ``[length]``."""

_Part: TypeAlias = str | bytes | int
Namespace: TypeAlias = str | bytes | tuple[_Part, _Part] | tuple[tuple[_Part, _Part], ...] | None
"""What must be equal besides tokens for two requests to share KV: adapter, salt, version.

None is the default namespace. Different values are different namespaces, their types included.
"""
