"""What comes back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request took.

    Attributes
    ----------
    prompt_tokens
        Tokens of the prompt.
    cached_tokens
        Those of them whose K and V were cached when the request was admitted.
    completion_tokens
        Sampled tokens.
    ttft_s
        Seconds from submission to the first token; None before there is one.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_s: float | None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """One continuation, finished or on its way.

    Attributes
    ----------
    text
        The continuation so far, without special tokens and without the stop string; empty if the
        model has no tokenizer.
    token_ids
        Its tokens, an end-of-sequence token included.
    finish_reason
        ``"stop"`` (end-of-sequence token or stop string), ``"length"`` (``max_tokens``, or no
        room for longer texts), ``"abort"``, or None while it goes on.
    logprobs
        Per token the log-probabilities of the chosen and the most likely tokens, if asked for.
    usage
        What it took.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    usage: Usage
    logprobs: tuple[dict[int, float], ...] | None = None


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What an engine has done since it was made.

    Attributes
    ----------
    num_steps
        Forwards of the model.
    computed_tokens
        Tokens that went through the model, prompts and sampled ones.
    cached_tokens
        Tokens that did not have to, since their K and V were cached.
    num_retractions
        How often a running request was taken off for want of slots.
    kv_bytes_pool
        Size of the KV pool.
    kv_bytes_used
        KV bytes that running requests held at the step where they were longest together.
    kv_bytes_contiguous
        KV bytes that one contiguous cache per request would have held at that step.
    """

    num_steps: int
    computed_tokens: int
    cached_tokens: int
    num_retractions: int
    kv_bytes_pool: int
    kv_bytes_used: int
    kv_bytes_contiguous: int
