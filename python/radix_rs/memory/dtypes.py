"""The number formats that K and V are stored in."""

from __future__ import annotations

import torch

from radix_rs.errors import InvalidInputError

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def torch_dtype(name: str | torch.dtype) -> torch.dtype:
    """Return the torch dtype of a name.

    Parameters
    ----------
    name
        ``"float32"``, ``"bfloat16"``, ``"float16"`` or one of these as a torch dtype.

    Raises
    ------
    InvalidInputError
        For every other name.
    """
    if isinstance(name, torch.dtype):
        if name in DTYPES.values():
            return name
    elif name in DTYPES:
        return DTYPES[name]
    raise InvalidInputError(f"dtype {name!s} is not one of {', '.join(DTYPES)}")
