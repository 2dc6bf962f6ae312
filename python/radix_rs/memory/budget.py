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
        raise InvalidInputError(f"page_size is {page_size}; it must be at least 1")
    measures = {"num_slots": num_slots, "kv_bytes": kv_bytes, "kv_share": kv_share}
    given = {name: measure for name, measure in measures.items() if measure is not None}
    if len(given) != 1:
        how_many = "at most one of" if given else "one of"
        raise InvalidInputError(f"give {how_many} num_slots, kv_bytes and kv_share")
    ((name, measure),) = given.items()
    if num_slots is not None:
        if num_slots < 1:
            raise InvalidInputError(f"num_slots is {num_slots}; it must be at least 1")
        slots = -(-num_slots // page_size) * page_size
    else:
        if kv_share is not None:
            if not 0.0 < kv_share <= 1.0:
                raise InvalidInputError(f"kv_share is {kv_share}; it must be in (0, 1]")
            kv_bytes = int(kv_share * free_bytes(device or torch.device("cpu")))
        assert kv_bytes is not None
        slots = kv_bytes // (bytes_per_token * page_size) * page_size
    if slots < page_size:
        raise InvalidInputError(
            f"{name} is {measure}; one page of {page_size} tokens needs "
            f"{bytes_per_token * page_size} bytes"
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
