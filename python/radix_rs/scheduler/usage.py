"""What scheduling has cost and saved so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StepUsage:
    """Counters over the life of a scheduler, all in tokens unless said.

    Attributes
    ----------
    num_steps
        Steps, each one forward of the model.
    computed_tokens
        Tokens that went through the model.
    cached_tokens
        Tokens that did not have to, since their K and V were cached at an admission.
    num_retractions
        How often a running request was taken off for want of slots.
    contiguous_tokens, used_tokens
        At the step where running requests were longest together: their summed length, which is
        what one contiguous cache per request would hold, and the slots they really held.
    """

    num_steps: int = 0
    computed_tokens: int = 0
    cached_tokens: int = 0
    num_retractions: int = 0
    contiguous_tokens: int = 0
    used_tokens: int = 0
