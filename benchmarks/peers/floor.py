"""What a hit from Python cannot do without: one comparison, one view per edge, one empty call."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .timing import per_call_us

HERE = Path(__file__).resolve().parent


def _library() -> Any:
    """Compile the comparison, once for each environment; None without a C compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    library = Path(sys.prefix) / "radix_rs_floor.so"
    source = HERE / "floor.c"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        if compiler is None:
            return None
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.compare_ns.restype = ctypes.c_double
    pointers = ctypes.POINTER(ctypes.c_void_p)
    loaded.compare_ns.argtypes = [pointers, pointers, *[ctypes.c_size_t] * 3]
    return loaded


class Floor:
    """The parts of a floor, each measured on the arrays that the tree gets."""

    def __init__(self) -> None:
        self.library = _library()

    def compare_us(self, keys: Sequence[NDArray[Any]]) -> float:
        """Return microseconds for comparing one of ``keys`` with its like, each in its turn."""
        copies = [key.copy() for key in keys]
        if self.library is None:
            pairs = list(zip(keys, copies, strict=True))
            return per_call_us(lambda pair: np.array_equal(*pair), pairs)
        kind = ctypes.c_void_p * len(keys)
        left = kind(*[key.ctypes.data for key in keys])
        right = kind(*[copy.ctypes.data for copy in copies])
        rounds = max(1, 64 // len(keys))
        size = keys[0].nbytes
        return self.library.compare_ns(left, right, len(keys), size, rounds) / 1e3

    def view_us(self, array: NDArray[Any], count: int = 4096) -> float:
        """Return microseconds for one more view of memory that is there."""
        whole = slice(None)
        return per_call_us(array.__getitem__, [whole] * count)

    def empty_us(self, ours: Any, count: int = 4096) -> float:
        """Return microseconds for a call of ours that finds nothing."""
        return per_call_us(ours.tree.match_prefix, [np.empty(0, np.int32)] * count)
