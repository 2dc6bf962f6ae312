"""Every way to write a prompt, turned into token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radix_rs.errors import InvalidInputError

Message = Mapping[str, Any]
Prompt = str | Sequence[int] | Sequence[Message]


def split_prompts(prompts: Any) -> list[Any]:
    """Return a list of single prompts, whether one or several were given.

    Parameters
    ----------
    prompts
        A text, a list of token ids, a list of messages, or a list of these.

    Raises
    ------
    InvalidInputError
        If it is none of these.
    """
    if isinstance(prompts, str) or _is_ids(prompts) or _is_messages(prompts):
        return [prompts]
    if isinstance(prompts, Sequence) or (isinstance(prompts, np.ndarray) and prompts.ndim):
        return list(prompts)
    raise InvalidInputError(f"a prompt is a text, token ids or messages, not {_name(prompts)}")


def encode_prompt(prompt: Any, tokenizer: Any | None, vocab_size: int) -> NDArray[np.int32]:
    """Return the token ids of one prompt, int32 ``[num_tokens]``.

    Parameters
    ----------
    prompt
        A text, a list of token ids, or a list of messages (``{"role": ..., "content": ...}``).
    tokenizer
        A transformers tokenizer; None takes token ids only.
    vocab_size
        Token ids must be below.

    Raises
    ------
    InvalidInputError
        If the prompt is empty, is of another kind, holds an id that the model does not know, or a
        message without a role and a content that are strings.
    """
    if _is_ids(prompt):
        try:
            ids = np.asarray(prompt)
        except (ValueError, OverflowError) as error:  # a list in a list, an id beyond 64 bits
            raise InvalidInputError(
                f"a prompt of token ids holds something else: {error}"
            ) from error
    elif isinstance(prompt, str) or _is_messages(prompt):
        if tokenizer is None:
            raise InvalidInputError("this model has no tokenizer: give token ids")
        ids = np.array(_encode_text(prompt, tokenizer), np.int64)
    else:
        raise InvalidInputError(f"a prompt is a text, token ids or messages, not {_name(prompt)}")
    if not len(ids):
        raise InvalidInputError("a prompt has at least one token")
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise InvalidInputError(f"a prompt is a text, token ids or messages, not {_name(prompt)}")
    foreign = np.flatnonzero((ids < 0) | (ids >= vocab_size))
    if len(foreign):
        position = int(foreign[0])
        token = int(ids[position])
        raise InvalidInputError(
            f"token id {token} at position {position} is not below {vocab_size}", position, token
        )
    return ids.astype(np.int32)


def _encode_text(prompt: Any, tokenizer: Any) -> list[int]:
    if isinstance(prompt, str):
        return list(tokenizer(_unicode(prompt)).input_ids)
    if getattr(tokenizer, "chat_template", None) is None:
        raise InvalidInputError("this model has no chat template: give a text or token ids")
    for position, message in enumerate(prompt):
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise InvalidInputError(
                    f"message {position} needs a {key!r} that is a string", position
                )
    try:
        text = tokenizer.apply_chat_template(
            list(prompt), tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # a template is a program of the model's author
        raise InvalidInputError(f"the chat template refuses the messages: {error}") from error
    # The template has written the special tokens already.
    return list(tokenizer(_unicode(text), add_special_tokens=False).input_ids)


def _unicode(text: str) -> str:
    """Return the text if it is one: half a surrogate pair has no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"a text is not valid Unicode at position {error.start}", error.start
        ) from error
    return text


def _is_ids(prompt: Any) -> bool:
    """Tell token ids by the first of them: looking at all takes longer than a small prefill."""
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 1 and np.issubdtype(prompt.dtype, np.integer)
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, str | bytes)
        and len(prompt) > 0
        and isinstance(prompt[0], int | np.integer)
    )


def _is_messages(prompt: Any) -> bool:
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, str | bytes)
        and len(prompt) > 0
        and all(isinstance(message, Mapping) for message in prompt)
    )


def _name(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        kinds = sorted({type(item).__name__ for item in value})
        return f"a list of {' and '.join(kinds)}" if kinds else "an empty list"
    return type(value).__name__
