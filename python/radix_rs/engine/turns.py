"""Who may work on the engine now, and what others leave for them to do."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """A lock whose holder also does what was left by those who may not wait.

    A stream can be closed anywhere: by the garbage collector in the middle of a step of the same
    thread, or in a signal handler. It leaves its end here instead of waiting for the lock.

    Parameters
    ----------
    work
        Done once for each thing that is left; a second time must be harmless.
    """

    def __init__(self, work: Callable[[T], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._left: deque[T] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        try:
            self._do()
        finally:
            self._lock.release()
        self._sweep()

    def leave(self, thing: T) -> None:
        """Have something done: now if nobody has the lock, else by whoever has it."""
        self._left.append(thing)
        self._sweep()

    def _sweep(self) -> None:
        while self._left and self._lock.acquire(blocking=False):
            try:
                self._do()
            finally:
                self._lock.release()

    def _do(self) -> None:
        while self._left:
            self._work(self._left[0])
            self._left.popleft()
