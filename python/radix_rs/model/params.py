"""How a continuation is chosen and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

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
        If a value is of another type or out of its range.
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
        object.__setattr__(self, "stop", _stop(self.stop))
        if not isinstance(self.ignore_eos, bool):
            raise InvalidInputError(f"ignore_eos is {self.ignore_eos!r}; it must be a bool")
        for name, low, is_optional in (
            ("top_k", 0, False),
            ("max_tokens", 1, False),
            ("n", 1, False),
            ("logprobs", 0, True),
            ("seed", None, True),
        ):
            object.__setattr__(
                self, name, _as_int(name, getattr(self, name), low, is_optional=is_optional)
            )
        _check_number("temperature", self.temperature)
        _check_number("top_p", self.top_p)
        _check_number("min_p", self.min_p)
        for name, is_valid, allowed in (
            ("temperature", 0.0 <= self.temperature < float("inf"), "at least 0 and finite"),
            ("top_p", 0.0 < self.top_p <= 1.0, "in (0, 1]"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "in [0, 1]"),
        ):
            if not is_valid:
                raise InvalidInputError(f"{name} is {getattr(self, name)}; it must be {allowed}")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature == 0.0 or self.top_k == 1


_MOST = 2**31 - 1


def _stop(stop: Any) -> tuple[str, ...]:
    texts = (stop,) if isinstance(stop, str) else stop
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise InvalidInputError(f"stop is {stop!r}; it must be a str or a sequence of str")
    if "" in texts:
        raise InvalidInputError("stop holds an empty string; each must have a character")
    return tuple(texts)


def _as_int(name: str, value: Any, low: int | None, *, is_optional: bool) -> int | None:
    """Return a plain int: the integers of NumPy overflow where ours do not."""
    if value is None and is_optional:
        return None
    kind = "an int or None" if is_optional else "an int"
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidInputError(f"{name} is {value!r}; it must be {kind}")
    number = int(value)
    if low is not None and not low <= number <= _MOST:
        raise InvalidInputError(f"{name} is {number}; it must be at least {low} and below 2**31")
    return number


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidInputError(f"{name} is {value!r}; it must be a number")
