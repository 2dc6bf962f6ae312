"""One continuation on its way: its tokens, its text, and whether it is over."""

from __future__ import annotations

import secrets
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radix_rs.engine.output import RequestOutput, Usage
from radix_rs.engine.stopping import StopWatch
from radix_rs.model import Detokenizer, Draw, Sampled, SamplingParams
from radix_rs.scheduler import Request


class Job:
    """What the engine keeps of a request beside what the scheduler knows.

    Parameters
    ----------
    prompt
        Token ids, int32.
    params
        How it is continued.
    index
        Which of the ``n`` continuations of its prompt this is.
    max_tokens
        New tokens at most.
    eos_token_ids
        Tokens that end it.
    tokenizer
        A transformers tokenizer, or None.
    is_streamed
        Whether text is wanted after each token, not only at the end.

    Attributes
    ----------
    request
        Its tokens and its hold on the cache.
    seed
        Its own, derived from that of its parameters.
    finish_reason
        None while it goes on.
    sampled
        What was sampled for it so far. Everything else that a token entails follows from this
        list, so a step that is interrupted between the two is made up for by the next one.
    error
        Why it could not go on, for its owner to raise.
    """

    def __init__(
        self,
        prompt: NDArray[np.int32],
        params: SamplingParams,
        index: int,
        *,
        max_tokens: int,
        eos_token_ids: frozenset[int],
        tokenizer: Any | None,
        is_streamed: bool,
    ) -> None:
        self.request = Request(prompt, max_tokens)
        self.params = params
        base = secrets.randbits(64) if params.seed is None else params.seed
        self.seed = base + (index << 32)
        self.finish_reason: str | None = None
        self.sampled: list[Sampled] = []
        self.error: Exception | None = None
        self._eos = frozenset() if params.ignore_eos else eos_token_ids
        self._detokenizer = None if tokenizer is None else Detokenizer(tokenizer, prompt.tolist())
        self._watch = StopWatch(params.stop)
        # Text of every single token costs; without stop strings and readers it comes at the end.
        self._reads_text = is_streamed or bool(params.stop)
        self._num_read = 0
        self._num_taken = 0
        self._submitted_s = time.perf_counter()
        self._first_token_s: float | None = None

    def draw(self) -> Draw:
        """Return what its next token depends on beside logits."""
        return Draw(self.params, self.seed, len(self.request.output))

    @property
    def has_news(self) -> bool:
        """Whether tokens were sampled that it has not taken note of."""
        return self._num_taken < len(self.sampled)

    def take(self) -> None:
        """Take note of the tokens that were appended to the request since the last time."""
        if self._first_token_s is None:
            self._first_token_s = time.perf_counter()
        if self._reads_text:
            self._read_text()
        for sampled in self.sampled[self._num_taken :]:
            if self._watch.is_stopped or sampled.token in self._eos:
                self.finish("stop")
        if len(self.request.output) >= self.request.max_output:
            self.finish("length")
        self._num_taken = len(self.sampled)

    def fail(self, error: Exception) -> None:
        """End it for a reason of its own."""
        self.error = error
        self.finish("abort")

    def finish(self, reason: str) -> None:
        """End it and make all its text known."""
        if self.finish_reason is not None:
            return
        self.finish_reason = reason
        self._read_text()
        if self._detokenizer is not None:
            self._watch.push(self._detokenizer.finish())
        self._watch.finish()

    def output(self) -> RequestOutput:
        """Return where it stands."""
        ttft_s = None if self._first_token_s is None else self._first_token_s - self._submitted_s
        return RequestOutput(
            text=self._watch.text,
            token_ids=tuple(self.request.output),
            finish_reason=self.finish_reason,
            logprobs=self._logprobs(),
            usage=Usage(
                prompt_tokens=self.request.num_prompt,
                cached_tokens=self.request.cached_tokens,
                completion_tokens=len(self.request.output),
                ttft_s=ttft_s,
            ),
        )

    def _logprobs(self) -> tuple[dict[int, float], ...] | None:
        if self.params.logprobs is None:
            return None
        return tuple(one.logprobs for one in self.sampled if one.logprobs is not None)

    def _read_text(self) -> None:
        new = self.request.output[self._num_read :]
        self._num_read = len(self.request.output)
        if self._detokenizer is not None and new:
            self._watch.push(self._detokenizer.push(new))
