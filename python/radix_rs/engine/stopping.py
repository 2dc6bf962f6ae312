"""Stop strings, also where they span tokens."""

from __future__ import annotations

from collections.abc import Sequence


class StopWatch:
    """Gives out text up to the first stop string.

    Text that may turn out to be the beginning of a stop string is held back until it is known.

    Parameters
    ----------
    stop
        Strings that end the text.

    Attributes
    ----------
    text
        What has been given out.
    is_stopped
        Whether a stop string has come.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""
        self.text = ""
        self.is_stopped = False

    def push(self, text: str) -> str:
        """Take text and return what of it and of held text is known to stay."""
        if self.is_stopped:
            return ""
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self.is_stopped = True
            return self._give(min(found))
        return self._give(len(self._held) - self._undecided())

    def finish(self) -> str:
        """Return the text that was held back: no more comes, so it is no stop string."""
        return "" if self.is_stopped else self._give(len(self._held))

    def _give(self, length: int) -> str:
        given, self._held = self._held[:length], self._held[length:]
        self.text += given
        return given

    def _undecided(self) -> int:
        """Return the length of the longest end of held text that begins a stop string."""
        longest = 0
        for stop in self._stop:
            for length in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:length]):
                    longest = length
                    break
        return longest
