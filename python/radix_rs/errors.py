"""The typed errors of radix-rs.

Every error that the core raises derives from :class:`RadixError`. The numbers an error speaks of
are attributes, so that an engine can act on them without parsing a message. All errors can be
pickled and copied: their attributes survive a process boundary.
"""

from __future__ import annotations

__all__ = [
    "CapacityError",
    "DoubleFreeError",
    "IntegrityError",
    "InvalidInputError",
    "LeaseError",
    "PinBudgetError",
    "RadixError",
    "SnapshotError",
    "StaleHandleError",
]


class RadixError(Exception):
    """Base class of every error that radix-rs raises on purpose."""


class InvalidInputError(RadixError, ValueError):
    """An argument has a value or type that is not allowed; nothing was changed.

    Attributes
    ----------
        position: index of the offending element, or None where no single element is to blame.
        value: the offending value, or None.
        prompt: index of the offending prompt in a list of prompts, or None.
    """

    position: int | None
    value: int | None
    prompt: int | None

    def __init__(
        self,
        message: str = "",
        position: int | None = None,
        value: int | None = None,
        prompt: int | None = None,
    ) -> None:
        super().__init__(message)
        self.position = position
        self.value = value
        self.prompt = prompt


class CapacityError(RadixError):
    """There are not enough slots, even after evicting everything that may be evicted.

    Attributes (all in tokens):
        needed: slots that had to be found (whole pages).
        free: slots that were free.
        evictable: cached tokens that no lease protects.
        protected: cached tokens that a lease protects.
    """

    needed: int
    free: int
    evictable: int
    protected: int

    def __init__(self, needed: int, free: int, evictable: int = 0, protected: int = 0) -> None:
        super().__init__(needed, free, evictable, protected)
        self.needed = needed
        self.free = free
        self.evictable = evictable
        self.protected = protected

    def __str__(self) -> str:
        return (
            f"needed {self.needed} slots, but only {self.free} are free and "
            f"{self.evictable} evictable ({self.protected} are protected by leases)"
        )


class StaleHandleError(RadixError):
    """A handle was used after its node was evicted, merged away or reset."""


class DoubleFreeError(RadixError):
    """A slot was given back that is free already; nothing was changed.

    Attributes
    ----------
        slot: the first such slot.
    """

    slot: int

    def __init__(self, slot: int) -> None:
        super().__init__(slot)
        self.slot = slot

    def __str__(self) -> str:
        return f"slot {self.slot} is free already"


class LeaseError(RadixError):
    """A lease or sequence is released, finished, in use elsewhere or belongs to another tree."""


class PinBudgetError(RadixError):
    """A pin would keep more than all pins together may; nothing was pinned.

    Attributes (all in tokens):
        needed: what it would keep that no other pin does.
        pinned: what the others keep.
        budget: what they may keep together.
    """

    needed: int
    pinned: int
    budget: int

    def __init__(self, needed: int, pinned: int, budget: int) -> None:
        super().__init__(needed, pinned, budget)
        self.needed = needed
        self.pinned = pinned
        self.budget = budget

    def __str__(self) -> str:
        return (
            f"would pin {self.needed} tokens more, but {self.pinned} of {self.budget} "
            f"that pins may keep are pinned already"
        )


class SnapshotError(RadixError):
    """A snapshot cannot be read or taken; the message says what and where."""


class IntegrityError(RadixError):
    """An invariant of tree, pool or cache is broken; the message names the first one."""
