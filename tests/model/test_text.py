"""Text: characters that span tokens, stop strings that span tokens, and every way to ask."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from radix_rs import LLM
from radix_rs.engine.prompts import encode_prompt, split_prompts
from radix_rs.engine.stopping import StopWatch
from radix_rs.errors import InvalidInputError
from radix_rs.model import Detokenizer

TEXTS = ["plain words", "naïve café", "日本語のテキスト", "🙂🙃 a 👩‍👩‍👧 b", "mixed ß 语 \n\t end "]


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_comes_token_by_token_never_breaks_a_character(
    text: str, shared_llm: LLM
) -> None:
    tokenizer = shared_llm.tokenizer
    assert tokenizer is not None
    detokenizer = Detokenizer(tokenizer, tokenizer("before ").input_ids)
    pieces = [detokenizer.push([token]) for token in tokenizer(text).input_ids]
    pieces.append(detokenizer.finish())
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert "".join(pieces) == detokenizer.text == text


def test_text_does_not_depend_on_how_tokens_come(shared_llm: LLM) -> None:
    tokenizer = shared_llm.tokenizer
    assert tokenizer is not None
    shuffler = random.Random(1)
    for _ in range(20):
        tokens = [shuffler.randrange(2, shared_llm.vocab_size) for _ in range(30)]
        whole = Detokenizer(tokenizer, [5, 6])
        whole.push(tokens)
        whole.finish()
        single = Detokenizer(tokenizer, [5, 6])
        for token in tokens:
            single.push([token])
        single.finish()
        assert single.text == whole.text


def test_bytes_that_never_become_a_character_come_at_the_end(shared_llm: LLM) -> None:
    tokenizer = shared_llm.tokenizer
    assert tokenizer is not None
    first_bytes = tokenizer("語").input_ids[:-1]
    detokenizer = Detokenizer(tokenizer, [])
    assert detokenizer.push(first_bytes) == ""
    assert "\N{REPLACEMENT CHARACTER}" in detokenizer.finish()


def pushed(stop: list[str], pieces: list[str]) -> tuple[list[str], StopWatch]:
    watch = StopWatch(stop)
    given_out = [watch.push(piece) for piece in pieces]
    given_out.append(watch.finish())
    return given_out, watch


def test_a_stop_string_is_found_across_pieces() -> None:
    given_out, watch = pushed(["</end>"], ["one <", "/e", "nd", "> two"])
    assert watch.is_stopped
    assert watch.text == "one "
    assert given_out == ["one ", "", "", "", ""]


def test_what_only_looked_like_a_stop_string_is_given_out() -> None:
    given_out, watch = pushed(["abcd"], ["xab", "c", "ab"])
    assert not watch.is_stopped
    assert given_out == ["x", "", "abc", "ab"]


def test_the_first_of_several_stop_strings_counts() -> None:
    assert pushed(["b", "ab"], ["xxab"])[1].text == "xx"
    assert pushed(["c", "b"], ["abc"])[1].text == "a"


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=8),
    stop=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_stopping_is_that_of_the_whole_text(pieces: list[str], stop: list[str]) -> None:
    given_out, watch = pushed(stop, pieces)
    # With several, a string that is complete earlier ends the text before one that began earlier.
    whole = ""
    expected = None
    for piece in pieces:
        whole += piece
        found = [at for at in (whole.find(one) for one in stop) if at >= 0]
        if found:
            expected = min(found)
            break
    assert watch.is_stopped == (expected is not None)
    assert watch.text == (whole if expected is None else whole[:expected])
    assert "".join(given_out) == watch.text


def test_every_way_to_write_prompts_is_understood() -> None:
    message = {"role": "user", "content": "hi"}
    assert split_prompts("hi") == ["hi"]
    assert split_prompts([1, 2]) == [[1, 2]]
    assert split_prompts([message]) == [[message]]
    assert split_prompts(["a", [1], [message]]) == ["a", [1], [message]]
    assert split_prompts(np.array([1, 2]))[0].tolist() == [1, 2]
    assert split_prompts([]) == []
    with pytest.raises(InvalidInputError, match="int"):
        split_prompts(3)


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ({}, "role"),
        ({"content": "hi"}, "role"),
        ({"role": None, "content": "hi"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": 3}, "content"),
    ],
)
def test_a_message_needs_a_role_and_a_content(
    message: dict[str, object], key: str, shared_llm: LLM
) -> None:
    first = {"role": "user", "content": "hi"}
    with pytest.raises(InvalidInputError, match=f"message 1 needs a '{key}'"):
        encode_prompt([first, message], shared_llm.tokenizer, shared_llm.vocab_size)


def test_a_template_that_refuses_messages_is_named() -> None:
    def refuse(*_: object, **__: object) -> str:
        raise ValueError("roles must alternate")

    tokenizer = SimpleNamespace(chat_template="x", apply_chat_template=refuse)
    with pytest.raises(InvalidInputError, match=r"chat template refuses.*alternate"):
        encode_prompt([{"role": "user", "content": "hi"}], tokenizer, 10)


def test_messages_go_through_the_chat_template(shared_llm: LLM) -> None:
    tokenizer = shared_llm.tokenizer
    assert tokenizer is not None
    ids = encode_prompt([{"role": "user", "content": "hi"}], tokenizer, shared_llm.vocab_size)
    assert tokenizer.decode(ids) == "<|user|>hi<|eos|><|assistant|>"


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("", "at least one token"),
        ([], "empty list"),
        ([1, 99_999], "99999 at position 1"),
        ([-1], "-1 at position 0"),
        ([1, "a"], "int and str"),
        ([1, 2.5], "float and int"),
        ([[1, 2], [3]], "a list of list"),
        (3.5, "float"),
        ([{"content": "no role"}], "message 0 needs a 'role'"),
    ],
)
def test_what_is_no_prompt_is_refused(prompt: object, reason: str, shared_llm: LLM) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        encode_prompt(prompt, shared_llm.tokenizer, shared_llm.vocab_size)


def test_without_a_tokenizer_only_token_ids_are_taken() -> None:
    assert encode_prompt(np.array([1, 2], np.int64), None, 10).tolist() == [1, 2]
    with pytest.raises(InvalidInputError, match="no tokenizer"):
        encode_prompt("text", None, 10)
