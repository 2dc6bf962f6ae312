"""`LLM`: what comes back, what is counted, and that nothing is left behind."""

from __future__ import annotations

import doctest
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise, zip_longest

import pytest
import torch
from radix_rs import LLM, SamplingParams
from radix_rs.errors import InvalidInputError, RadixError

GREEDY = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)


def greedy(max_tokens: int, **arguments: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, **arguments)


def test_outputs_say_what_was_done(llm: LLM) -> None:
    (output,) = llm.generate("Once upon a time", GREEDY, progress=False)
    assert output.finish_reason == "length"
    assert len(output.token_ids) == output.usage.completion_tokens == 16
    assert llm.tokenizer is not None
    assert output.text == llm.tokenizer.decode(output.token_ids)
    assert output.usage.prompt_tokens == len(llm.tokenizer("Once upon a time").input_ids)
    assert output.usage.cached_tokens == 0
    assert output.usage.ttft_s is not None
    assert output.usage.ttft_s > 0
    assert output.logprobs is None


def test_prompts_of_every_kind_are_answered_in_order(llm: LLM) -> None:
    chat = [{"role": "user", "content": "Hello"}]
    outputs = llm.generate(["Hello", [5, 6, 7], chat], GREEDY, progress=False)
    singles = [llm.generate(p, GREEDY, progress=False)[0] for p in ("Hello", [5, 6, 7], chat)]
    assert [one.text for one in outputs] == [one.text for one in singles]
    assert llm.generate([], progress=False) == []


def test_the_second_turn_of_a_long_conversation_computes_only_new_tokens(llm: LLM) -> None:
    first = [3 + i % 1500 for i in range(1950)]
    (answer,) = llm.generate(first, greedy(50, ignore_eos=True), progress=False)
    before = llm.stats()
    turn = first + list(answer.token_ids) + [9] * 40
    assert len(turn) == 2040
    (output,) = llm.generate(turn, greedy(1), progress=False)
    # The last sampled token has never been through the model: it is new, too.
    assert output.usage.cached_tokens == 1999
    assert llm.stats().computed_tokens - before.computed_tokens == 41
    assert llm.stats().cached_tokens - before.cached_tokens == 1999


@pytest.mark.parametrize("page_size", [1, 16])
def test_five_requests_that_share_a_system_prompt_compute_it_once(page_size: int) -> None:
    shared = [3 + i % 1500 for i in range(4096)]
    prompts = [shared + [10 + own] * 256 for own in range(5)]
    with LLM(dtype="float32", num_slots=8192, page_size=page_size) as llm:
        outputs = llm.generate(prompts, greedy(1), progress=False)
        stats = llm.stats()
        assert stats.computed_tokens == 4096 + 5 * 256
        assert stats.cached_tokens == 4 * 4096
        assert [one.usage.cached_tokens for one in outputs] == [0, 4096, 4096, 4096, 4096]


def test_bytes_saved_are_those_of_shared_prefixes() -> None:
    with LLM(dtype="float32", num_slots=1024) as llm:
        shared = list(range(100, 300))
        llm.generate(shared, greedy(1), progress=False)
        llm.generate(
            [[*shared, 5 + own] for own in range(3)], greedy(3, ignore_eos=True), progress=False
        )
        stats = llm.stats()
        per_token = stats.kv_bytes_pool // 1024
        assert stats.kv_bytes_contiguous // per_token == 3 * 203
        assert stats.kv_bytes_used // per_token == 200 + 3 * 3


def test_an_end_of_sequence_token_ends(llm: LLM) -> None:
    prompt = [{"role": "user", "content": "Hello"}]
    (output,) = llm.generate(prompt, greedy(200), progress=False)
    assert output.finish_reason == "stop"
    assert output.token_ids[-1] == 0
    assert "<|eos|>" not in output.text
    (longer,) = llm.generate(prompt, greedy(200, ignore_eos=True), progress=False)
    assert longer.finish_reason == "length"
    assert longer.token_ids[: len(output.token_ids)] == output.token_ids


def test_a_stop_string_ends_and_is_not_part_of_the_text(llm: LLM) -> None:
    (whole,) = llm.generate("Once upon a time", greedy(40, ignore_eos=True), progress=False)
    stop = whole.text[20:23]  # in the middle of words
    params = greedy(40, ignore_eos=True, stop=(stop,))
    (output,) = llm.generate("Once upon a time", params, progress=False)
    assert output.finish_reason == "stop"
    assert output.text == whole.text[: whole.text.index(stop)]
    assert len(output.token_ids) < 40
    streamed = [one.text for one in llm.stream("Once upon a time", params)]
    assert streamed[-1] == output.text
    assert all(output.text.startswith(text) for text in streamed)


def test_a_stream_grows_to_the_text_of_generate(llm: LLM) -> None:
    (whole,) = llm.generate("Once upon a time", GREEDY, progress=False)
    outputs = list(llm.stream("Once upon a time", GREEDY))
    assert [len(one.token_ids) for one in outputs] == list(range(1, 17))
    assert [one.finish_reason for one in outputs] == [None] * 15 + ["length"]
    assert outputs[-1].text == whole.text
    for before, after in pairwise(outputs):
        assert after.text.startswith(before.text)


def test_streams_are_read_in_turns_and_beside_generate(llm: LLM) -> None:
    alone = [list(llm.stream(p, GREEDY))[-1].token_ids for p in ([5, 6], [7, 8, 9])]
    streams = [llm.stream(p, GREEDY) for p in ([5, 6], [7, 8, 9])]
    last: list[tuple[int, ...]] = [(), ()]
    for number, outputs in enumerate(zip_longest(*streams)):
        for index, one in enumerate(outputs):
            if one is not None:
                assert one.token_ids[: len(last[index])] == last[index]
                last[index] = one.token_ids
        if number == 3:
            llm.generate([1, 2, 3], greedy(4), progress=False)
    assert last == alone


def test_a_stream_that_is_dropped_gives_everything_back(llm: LLM) -> None:
    stream = llm.stream([5, 6, 7], GREEDY)
    next(stream)
    assert llm.cache.stats()["num_sequences"] == 1
    stream.close()
    assert llm.cache.stats()["num_sequences"] == 0


def test_threads_may_share_an_engine(llm: LLM) -> None:
    prompts = [[5 + i, 6, 7] for i in range(6)]
    expected = [llm.generate(p, GREEDY, progress=False)[0].token_ids for p in prompts]
    found: dict[int, tuple[int, ...]] = {}

    def run(number: int) -> None:
        found[number] = llm.generate(prompts[number], GREEDY, progress=False)[0].token_ids

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(6)] == expected


class Interrupt:
    """Makes the n-th call of a function raise, as Ctrl-C in the middle of it would."""

    def __init__(self, function: object, after: int) -> None:
        self.function, self.left = function, after

    def __call__(self, *arguments: object, **named: object) -> object:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.function(*arguments, **named)  # type: ignore[operator]


@pytest.mark.parametrize("phase", ["_engine._runner.forward", "_scheduler.commit"])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupt_leaves_nothing_behind(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, phase: str, after: int
) -> None:
    *path, name = phase.split(".")
    owner: object = llm
    for part in path:
        owner = getattr(owner, part)
    prompts = [[5 + i] * 30 for i in range(3)]
    expected = [one.token_ids for one in llm.generate(prompts, GREEDY, progress=False)]
    llm.cache.reset()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, Interrupt(getattr(owner, name), after))
        with pytest.raises(KeyboardInterrupt):
            llm.generate(prompts, GREEDY, progress=False)
    assert llm.cache.stats()["num_sequences"] == 0
    llm.cache.check()
    # What was cached before the interrupt is right, or this would differ.
    assert [one.token_ids for one in llm.generate(prompts, GREEDY, progress=False)] == expected


def test_logprobs_come_with_each_token(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True, logprobs=2)
    (output,) = llm.generate([5, 6, 7], params, progress=False)
    assert output.logprobs is not None
    assert len(output.logprobs) == 3
    for token, logprobs in zip(output.token_ids, output.logprobs, strict=True):
        assert len(logprobs) == 2
        assert max(logprobs, key=lambda one: logprobs[one]) == token


def test_the_bar_is_shown_only_when_wanted(
    llm: LLM, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.generate([5, 6], greedy(2))
    assert capsys.readouterr().err == ""  # no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    llm.generate([5, 6], greedy(2), progress=False)
    assert capsys.readouterr().err == ""
    llm.generate([5, 6], greedy(2))
    assert "generating" in capsys.readouterr().err


@pytest.fixture
def small() -> Iterator[LLM]:
    with LLM(dtype="float32", num_slots=64) as llm:
        yield llm


def test_a_text_ends_where_the_pool_ends(small: LLM) -> None:
    (output,) = small.generate([5] * 50, greedy(100, ignore_eos=True), progress=False)
    assert output.finish_reason == "length"
    assert len(output.token_ids) == 14
    with pytest.raises(InvalidInputError, match="64"):
        small.generate([[1], [5] * 64], GREEDY, progress=False)
    assert small.cache.stats()["num_sequences"] == 0


def test_wrong_arguments_are_refused_before_anything_runs(small: LLM) -> None:
    before = small.stats()
    with pytest.raises(InvalidInputError, match="2 sampling parameters for 1"):
        small.generate([[1, 2]], [GREEDY, GREEDY], progress=False)
    with pytest.raises(InvalidInputError, match="n=2"):
        small.stream([1, 2], SamplingParams(n=2))
    with pytest.raises(InvalidInputError):
        small.stream("", GREEDY)
    assert small.stats() == before


@pytest.mark.parametrize(
    "arguments",
    [
        {"page_size": 0},
        {"page_size": 3},
        {"kv_bytes": 10},
        {"dtype": "int4"},
        {"kv_dtype": "float64"},
        {"device": "abacus"},
        {"attention_backend": "flashy"},
        {"policy": "oracle"},
        {"max_running": 0},
        {"max_batch_tokens": 3},
    ],
)
def test_an_engine_that_cannot_be_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        LLM(**{"num_slots": 64, **arguments})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_said_to_be() -> None:
    with pytest.raises(InvalidInputError, match="there is no device 'cuda' here"):
        LLM(num_slots=64, device="cuda")


def test_the_example_of_the_docstring_runs() -> None:
    names = {"LLM": LLM, "SamplingParams": SamplingParams}
    test = doctest.DocTestParser().get_doctest(LLM.__doc__ or "", names, "LLM", None, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_an_engine_shows_what_it_is() -> None:
    with LLM(dtype="float32", device="cpu", num_slots=64) as llm:
        assert repr(llm).startswith("LLM('embedded model', dtype=float32, device=cpu, num_slots=64")
    assert repr(llm) == "LLM('embedded model', closed)"


def test_a_closed_engine_says_so() -> None:
    llm = LLM(dtype="float32", num_slots=64)
    stream = llm.stream([1, 2, 3], GREEDY)
    next(stream)
    llm.close()
    llm.close()
    with pytest.raises(RadixError, match="closed"):
        llm.generate([1, 2], progress=False)
    with pytest.raises(RadixError, match="closed"):
        llm.stream([1, 2])
    assert [one.finish_reason for one in stream] in ([], ["abort"])
    llm.cache.check()
    assert llm.cache.stats()["num_sequences"] == 0


@pytest.mark.parametrize("kv_dtype", ["auto", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_kv_dtype_gives_the_same_with_and_without_the_cache(
    dtype: str, kv_dtype: str
) -> None:
    prompts = [[3 + i % 200 for i in range(80)], [3 + i % 200 for i in range(90)]]
    tokens = []
    for caching in (True, False):
        with LLM(
            dtype=dtype, kv_dtype=kv_dtype, num_slots=512, enable_prefix_caching=caching
        ) as llm:
            turns = [llm.generate(prompts, greedy(4), progress=False) for _ in range(2)]
            tokens.append([one.token_ids[0] for turn in turns for one in turn])
    assert tokens[0] == tokens[1]


def test_a_default_engine_has_a_pool_that_fits() -> None:
    with LLM() as llm:
        assert llm.max_len == 8192
        assert 8192 <= llm.cache.pool.num_slots <= 64 * 8192
    with LLM(kv_bytes=1 << 20, page_size=16, dtype="float32") as llm:
        assert llm.stats().kv_bytes_pool <= 1 << 20
