"""Turn tokens into text while they come, without breaking characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Tokens of the prompt that are decoded along: what stands before a token can change its text
# (a leading space, above all).
_CONTEXT = 6
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """Text of one continuation, token by token.

    Text is given out only once it cannot change any more: a character that spans several tokens
    comes with its last one. Special tokens have no text.

    Parameters
    ----------
    tokenizer
        A transformers tokenizer.
    prompt
        The token ids before the continuation.
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        # Decoding is always from `_start`; text up to `_done` has been given out.
        self._ids = [int(token) for token in prompt[-_CONTEXT:]]
        self._start = 0
        self._done = len(self._ids)
        self.text = ""

    def push(self, tokens: Sequence[int]) -> str:
        """Take new tokens and return the text that is final now, often just one character."""
        self._ids.extend(tokens)
        before = self._decode(self._start, self._done)
        now = self._decode(self._start, len(self._ids))
        if len(now) <= len(before) or now.endswith(_INCOMPLETE):
            return ""
        return self._give(now[len(before) :])

    def finish(self) -> str:
        """Return what is left: the replacement character for bytes that never became one."""
        if self._done == len(self._ids):
            return ""
        before = self._decode(self._start, self._done)
        return self._give(self._decode(self._start, len(self._ids))[len(before) :])

    def _give(self, text: str) -> str:
        self._start, self._done = self._done, len(self._ids)
        self.text += text
        return text

    def _decode(self, start: int, stop: int) -> str:
        return str(
            self._tokenizer.decode(
                self._ids[start:stop],
                skip_special_tokens=True,
                clean_up_tokenization_spaces=False,
            )
        )
