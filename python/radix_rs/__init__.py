"""Prefix cache for language models: a lock-free radix tree over KV slots.

`RadixTree`, `SlotPool` and `PrefixCache` need NumPy only. `LLM` and what belongs to it are loaded
when they are first asked for and need ``pip install "radix-rs[engine]"``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from radix_rs import errors
from radix_rs._core import (
    Event,
    EventLog,
    Fence,
    Handle,
    InsertResult,
    Lease,
    Match,
    NodeInfo,
    Pin,
    PrefixCache,
    RadixTree,
    Sequence,
    SlotPool,
    WeightedPolicy,
    __version__,
)
from radix_rs.rows import RequestRows

if TYPE_CHECKING:
    from radix_rs.engine import LLM, RequestOutput, SamplingParams

__all__ = [
    "LLM",
    "Event",
    "EventLog",
    "Fence",
    "Handle",
    "InsertResult",
    "Lease",
    "Match",
    "NodeInfo",
    "Pin",
    "PrefixCache",
    "RadixTree",
    "RequestOutput",
    "RequestRows",
    "SamplingParams",
    "Sequence",
    "SlotPool",
    "WeightedPolicy",
    "__version__",
    "errors",
]

# Name -> module that has it, and the extra that the module needs.
_LAZY = {
    "LLM": ("radix_rs.engine", "engine"),
    "RequestOutput": ("radix_rs.engine", "engine"),
    "SamplingParams": ("radix_rs.engine", "engine"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _LAZY[name]
    try:
        value = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"radix_rs.{name} needs the package {error.name!r}: "
            f'pip install "radix-rs[{extra}]" brings it',
            name=error.name,
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
