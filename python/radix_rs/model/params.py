"""How a continuation is chosen and when it ends."""

from __future__ import annotations

from dataclasses import dataclass

from radix_rs.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one prompt is continued.

    Attributes
    ----------
    temperature
        Divides the logits; 0 takes the most likely token (greedy).
    top_p
        Sample from the smallest set of tokens whose probabilities reach this sum; in (0, 1].
    top_k
        Sample from this many most likely tokens; 0 for all.
    min_p
        Drop tokens less likely than this share of the most likely one; in [0, 1].
    max_tokens
        New tokens at most.
    stop
        Strings that end the text; they are not part of it.
    seed
        Makes the choice repeatable, whatever else is in the batch; None draws one.
    n
        Continuations of the prompt; they follow each other in the list of outputs.
    ignore_eos
        Go on after the model's end-of-sequence token.
    logprobs
        Return the log-probabilities of this many most likely tokens beside the chosen one; None
        for none at all.

    Raises
    ------
    InvalidInputError
        If a number is out of its range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 128
    stop: tuple[str, ...] = ()
    seed: int | None = None
    n: int = 1
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        else:
            object.__setattr__(self, "stop", tuple(self.stop))
        if "" in self.stop or not all(isinstance(text, str) for text in self.stop):
            raise InvalidInputError("stop must be strings of at least one character")
        for name, is_valid in (
            ("temperature", 0.0 <= self.temperature < float("inf")),
            ("top_p", 0.0 < self.top_p <= 1.0),
            ("top_k", self.top_k >= 0),
            ("min_p", 0.0 <= self.min_p <= 1.0),
            ("max_tokens", self.max_tokens >= 1),
            ("n", self.n >= 1),
            ("logprobs", self.logprobs is None or self.logprobs >= 0),
        ):
            if not is_valid:
                raise InvalidInputError(f"{name} cannot be {getattr(self, name)}")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature == 0.0 or self.top_k == 1
