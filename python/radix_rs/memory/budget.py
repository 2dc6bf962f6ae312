"""How many slots fit: from tokens, from bytes, or from a share of the free memory."""

from __future__ import annotations

from pathlib import Path

import torch

from radix_rs.errors import InvalidInputError

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def free_bytes(device: torch.device) -> int:
    """Return the bytes that can still be allocated on a device.

    On the host this is the memory the kernel calls available, or what the control group of the
    process still allows if that is less.
    """
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        return int(free)
    available = _available_host_bytes()
    left = _bytes_left_in_control_group()
    return available if left is None else min(available, left)


def num_slots_for(
    bytes_per_token: int,
    page_size: int,
    *,
    num_slots: int | None = None,
    kv_bytes: int | None = None,
    kv_share: float | None = None,
    device: torch.device | None = None,
) -> int:
    """Return the size of a pool in slots, a multiple of the page size.

    Exactly one of the three measures has to be given.

    Parameters
    ----------
    bytes_per_token
        K and V of one token over all layers, in bytes.
    page_size
        Slots per page.
    num_slots
        Size in tokens; rounded up to pages.
    kv_bytes
        Size in bytes; rounded down to pages.
    kv_share
        Share of the free memory of ``device``, between 0 and 1; rounded down to pages.

    Raises
    ------
    InvalidInputError
        If not exactly one measure is given, or it does not hold a single page, or there are none.
    """
    if page_size < 1:
        raise InvalidInputError(f"page_size must be at least 1, not {page_size}")
    given = [measure for measure in (num_slots, kv_bytes, kv_share) if measure is not None]
    if len(given) != 1:
        raise InvalidInputError("give exactly one of num_slots, kv_bytes and kv_share")
    if num_slots is not None:
        slots = -(-num_slots // page_size) * page_size
    else:
        if kv_share is not None:
            if not 0.0 < kv_share <= 1.0:
                raise InvalidInputError(f"kv_share must be in (0, 1], not {kv_share}")
            kv_bytes = int(kv_share * free_bytes(device or torch.device("cpu")))
        assert kv_bytes is not None
        slots = kv_bytes // (bytes_per_token * page_size) * page_size
    if slots < page_size:
        raise InvalidInputError(
            f"a KV pool of {given[0]} does not hold one page of {page_size} tokens "
            f"({bytes_per_token} bytes each)"
        )
    return slots


def _available_host_bytes() -> int:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    # Not Linux: a guess that is small enough for every machine which runs a model at all.
    return 2 * 1024**3


def _bytes_left_in_control_group() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = (_CGROUP / "memory.current").read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - int(used))
