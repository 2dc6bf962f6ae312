"""One request, as the scheduler sees it: tokens, and a hold on the cache while it runs."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radix_rs.scheduler.cache import CacheSequence

Tokens = NDArray[np.int32]


class Status(enum.Enum):
    """Where a request is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Request:
    """A prompt and what has been sampled after it.

    Parameters
    ----------
    prompt
        Token ids, at least one.
    max_output
        Tokens that may be sampled for it at most.
    namespace
        What must be equal besides tokens for K and V to be shared.

    Attributes
    ----------
    output
        Sampled token ids.
    sequence
        The hold on the cache; None unless the request runs.
    status
        Where it is in its life.
    cached_tokens
        Prompt tokens that were cached when it was first admitted, in tokens; 0 before.
    num_retractions
        How often it was taken off for want of slots.
    """

    __slots__ = (
        "_array",
        "_run_length",
        "cached_tokens",
        "max_output",
        "namespace",
        "num_prompt",
        "num_retractions",
        "output",
        "refused_at",
        "sequence",
        "status",
        "waits_for",
        "was_admitted",
    )

    def __init__(
        self, prompt: Sequence[int] | Tokens, max_output: int, namespace: Any = None
    ) -> None:
        self._array = np.array(prompt, dtype=np.int32)
        assert self._array.ndim == 1, "a prompt is a list of tokens"
        assert len(self._array), "a prompt has at least one token"
        self.num_prompt = len(self._array)
        self.max_output = max_output
        self.namespace = namespace
        self.output: list[int] = []
        self.sequence: CacheSequence | None = None
        self.status = Status.WAITING
        self.was_admitted = False
        self.cached_tokens = 0
        self.num_retractions = 0
        # Leading slots that are known to be consecutive.
        self._run_length = 0
        # A request that computes a prefix this one needs too, and how far it has to get.
        self.waits_for: tuple[Request, int] | None = None
        # Slots to be had when it was last refused; with no more of them it need not ask again.
        self.refused_at: int | None = None

    @property
    def num_tokens(self) -> int:
        """Prompt and output."""
        return self.num_prompt + len(self.output)

    @property
    def num_ahead(self) -> int:
        """Slots that tokens which are not sampled yet may need; the last one never needs any."""
        return max(0, self.max_output - len(self.output) - 1)

    @property
    def num_computed(self) -> int:
        """Tokens whose K and V exist in slots that this request holds."""
        return 0 if self.sequence is None else self.sequence.num_computed

    @property
    def tokens(self) -> Tokens:
        """int32 ``[num_tokens]``: prompt and output."""
        missing = self.num_tokens - len(self._array)
        if missing:
            self._array = np.append(self._array, np.array(self.output[-missing:], np.int32))
        return self._array

    def run_length(self, slots: NDArray[np.int32], stop: int) -> int:
        """Return how many of the first ``stop`` slots are consecutive from the first one on.

        What was found stays known, so for a decode one slot is looked at.
        """
        known = self._run_length
        if known >= stop or known == 0:
            known = 1
        if stop - known == 1:
            known += int(slots[known]) == int(slots[0]) + known
        elif stop > known:
            breaks = np.flatnonzero(np.diff(slots[known - 1 : stop]) != 1)
            known = int(breaks[0]) + known if len(breaks) else stop
        self._run_length = known
        return known

    def forget_run(self, start: int) -> None:
        """Take note that slots from ``start`` on have changed."""
        self._run_length = min(self._run_length, start)

    def token_range(self, start: int, stop: int) -> Tokens | list[int]:
        """Return tokens ``start .. stop``; a list if they were sampled."""
        if start >= self.num_prompt:
            return self.output[start - self.num_prompt : stop - self.num_prompt]
        return self.tokens[start:stop]
