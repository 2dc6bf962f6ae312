"""Choosing tokens: what the filters leave, and that nothing but logits, seed and step matters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from radix_rs import LLM, SamplingParams
from radix_rs.errors import InvalidInputError
from radix_rs.model import Draw, sample
from radix_rs.model.sample import uniform

LOGITS = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.25, 0.05]))


def drawn(count: int = 4000, **arguments: Any) -> dict[int, float]:
    """Share of each token over many draws from LOGITS."""
    params = SamplingParams(**arguments)
    rows = sample(LOGITS.expand(count, -1), [Draw(params, 7, step) for step in range(count)])
    tokens = [one.token for one in rows]
    return {token: tokens.count(token) / count for token in sorted(set(tokens))}


def test_tokens_come_as_often_as_their_probability_says() -> None:
    for token, share in drawn().items():
        assert share == pytest.approx(float(LOGITS[token].exp()), abs=0.03)


def test_a_temperature_sharpens_and_flattens() -> None:
    assert drawn(temperature=0.5)[1] == pytest.approx(0.16 / 0.275, abs=0.03)
    assert drawn(temperature=1e4)[4] == pytest.approx(0.2, abs=0.03)


def test_the_filters_leave_what_they_say() -> None:
    assert set(drawn(top_k=2)) == {1, 3}
    assert set(drawn(top_p=0.6)) == {1, 3}
    assert set(drawn(top_p=0.66)) == {1, 2, 3}
    assert set(drawn(top_p=0.001)) == {1}
    assert set(drawn(min_p=0.3)) == {1, 2, 3}
    assert set(drawn(min_p=1.0)) == {1}
    assert set(drawn(top_k=3, top_p=0.6)) == {1, 3}
    assert set(drawn(top_k=100)) == {0, 1, 2, 3, 4}


def test_temperature_zero_and_top_k_one_are_greedy() -> None:
    assert drawn(temperature=0.0) == drawn(top_k=1) == {1: 1.0}


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 50, generator=generator)
    params = [
        SamplingParams(),
        SamplingParams(temperature=0.0),
        SamplingParams(top_k=5),
        SamplingParams(top_p=0.5, temperature=2.0),
        SamplingParams(min_p=0.2),
        SamplingParams(top_p=0.9),
    ]
    draws = [Draw(one, 100 + i, i) for i, one in enumerate(params)]
    together = [one.token for one in sample(logits, draws)]
    alone = [sample(logits[i : i + 1], draws[i : i + 1])[0].token for i in range(6)]
    assert together == alone


def test_low_precision_logits_are_taken() -> None:
    draws = [Draw(SamplingParams(temperature=0.0), 0, 0), Draw(SamplingParams(), 0, 0)]
    for dtype in (torch.bfloat16, torch.float16):
        assert sample(LOGITS.expand(2, -1).to(dtype), draws)[0].token == 1


def test_draws_are_spread_evenly_and_differ_by_seed_and_step() -> None:
    numbers = [uniform(seed, step) for seed in (-1, 0, 1, 2**63) for step in range(500)]
    assert len(set(numbers)) == 2000
    assert all(0.0 <= number < 1.0 for number in numbers)
    assert sum(numbers) / 2000 == pytest.approx(0.5, abs=0.03)


def test_logprobs_are_those_of_the_model() -> None:
    (one,) = sample(LOGITS[None], [Draw(SamplingParams(temperature=0.0, logprobs=2), 0, 0)])
    assert one.logprobs == {1: pytest.approx(math.log(0.4)), 3: pytest.approx(math.log(0.25))}
    (one,) = sample(LOGITS[None], [Draw(SamplingParams(temperature=0.0, logprobs=0), 0, 0)])
    assert list(one.logprobs or {}) == [1]


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"min_p": -0.1},
        {"max_tokens": 0},
        {"n": 0},
        {"logprobs": -1},
        {"stop": ("",)},
    ],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(arguments))):
        SamplingParams(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": "1"},
        {"temperature": None},
        {"top_p": True},
        {"top_k": 1.0},
        {"min_p": "0"},
        {"max_tokens": None},
        {"max_tokens": 3.5},
        {"n": True},
        {"seed": "7"},
        {"seed": 7.0},
        {"logprobs": True},
        {"ignore_eos": 1},
        {"stop": None},
        {"stop": 3},
        {"stop": (3,)},
        {"stop": b"end"},
    ],
)
def test_values_of_another_type_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(arguments))):
        SamplingParams(**arguments)


def test_an_error_names_the_range() -> None:
    with pytest.raises(InvalidInputError, match=r"^top_p is 3\.0; it must be in \(0, 1\]$"):
        SamplingParams(top_p=3.0)


def test_numbers_of_numpy_are_numbers() -> None:
    params = SamplingParams(temperature=np.float32(0.5), top_k=np.int64(3), seed=np.int32(1))
    assert (params.temperature, params.top_k, params.seed) == (0.5, 3, 1)


def test_a_stop_string_may_stand_alone() -> None:
    assert SamplingParams(stop="end").stop == ("end",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


def test_seeds_give_the_same_tokens_whatever_the_batch(llm: LLM) -> None:
    prompts = [[5, 6, 7, 8], [9, 10, 11], [12, 13]]
    params = [SamplingParams(seed=seed, max_tokens=12, ignore_eos=True) for seed in (1, 2, 3)]
    together = llm.generate(prompts, params, progress=False)
    alone = [
        llm.generate(prompt, one, progress=False)[0]
        for prompt, one in zip(prompts, params, strict=True)
    ]
    again = llm.generate(prompts[::-1], params[::-1], progress=False)[::-1]
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    assert [one.token_ids for one in together] == [one.token_ids for one in again]


def test_without_a_seed_runs_differ(llm: LLM) -> None:
    params = SamplingParams(max_tokens=12, temperature=5.0, ignore_eos=True)
    outputs = llm.generate([[5, 6, 7]] * 3, params, progress=False)
    assert len({one.token_ids for one in outputs}) == 3


def test_several_continuations_share_their_prompt(llm: LLM) -> None:
    prompt = list(range(10, 110))
    before = llm.stats().computed_tokens
    params = SamplingParams(n=3, seed=4, temperature=3.0, max_tokens=5, ignore_eos=True)
    outputs = llm.generate([prompt, [7, 8]], params, progress=False)
    assert len(outputs) == 6
    assert len({one.token_ids for one in outputs[:3]}) == 3
    assert [one.usage.prompt_tokens for one in outputs] == [100] * 3 + [2] * 3
    # The long prompt once and its last token for each other; the short one is not worth a wait.
    prompts = 100 + 2 + 3 * 2
    assert llm.stats().computed_tokens - before == prompts + 6 * 4
