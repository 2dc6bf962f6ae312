"""Greedy tokens in float32: equal with the cache, without it, and in `transformers.generate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from radix_rs import LLM, SamplingParams

from .conftest import MODELS

NEW_TOKENS = 12
TIE = 1e-3
Prompts = list[list[int]]


@dataclass
class Tally:
    """Continuations compared, and those that differ at a tie of the reference."""

    compared: int = 0
    ties: int = 0


TALLY = Tally()


def workload(vocab_size: int, seed: int) -> Prompts:
    """Prompts with shared prefixes on and off page borders, equal ones, and one within another."""
    generator = torch.Generator().manual_seed(seed)

    def tokens(count: int) -> list[int]:
        return torch.randint(3, vocab_size, (count,), generator=generator).tolist()

    shared, system = tokens(37), tokens(64)
    twin = shared + tokens(20)
    return [
        shared + tokens(9),
        shared + tokens(30),
        twin,
        twin,
        twin[:48],  # a prefix of another, at the end of a page
        twin[:51],  # and in the middle of one
        system + tokens(3),
        system + tokens(17),
        system,
        tokens(1),
        tokens(90),
    ]


def reference(model: torch.nn.Module, prompt: list[int]) -> list[int]:
    tokens = torch.tensor([prompt])
    with torch.inference_mode():
        output = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
        )
    return output[0, len(prompt) :].tolist()


def compare(model: torch.nn.Module, prompt: list[int], ours: list[int], theirs: list[int]) -> None:
    """Count the continuation; fail unless it is equal, or differs where the reference is torn."""
    TALLY.compared += 1
    if ours == theirs:
        return
    at = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        min(len(ours), len(theirs)),
    )
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + theirs[:at]])).logits[0, -1]
    best = torch.topk(logits, 2).values
    gap = float(best[0] - best[1])
    assert gap < TIE, f"token {at} of the continuation of {prompt}: {ours} instead of {theirs}"
    TALLY.ties += 1


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[1, 16])
def page_size(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def make_llm(
    name: str, page_size: int, model_path: Callable[[str], Path]
) -> Iterator[Callable[..., LLM]]:
    opened: list[LLM] = []

    def make(**arguments: object) -> LLM:
        arguments = {"num_slots": 2048, **arguments}
        llm = LLM(model_path(name), dtype="float32", page_size=page_size, **arguments)
        opened.append(llm)
        return llm

    yield make
    for llm in opened:
        llm.cache.check()
        stats = llm.cache.stats()
        assert stats["num_free"] + stats["cached_tokens"] == stats["num_slots"]
        llm.close()


def continued(llm: LLM, prompts: Prompts) -> list[list[int]]:
    params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS)
    outputs = llm.generate(prompts, params, progress=False)
    return [list(output.token_ids) for output in outputs]


def test_cache_and_no_cache_give_the_tokens_of_transformers(
    name: str, make_llm: Callable[..., LLM], peer: Callable[[str], torch.nn.Module]
) -> None:
    model = peer(name)
    prompts = workload(model.config.vocab_size, seed=1)
    expected = [reference(model, prompt) for prompt in prompts]
    cached, plain = make_llm(), make_llm(enable_prefix_caching=False)
    # The second turn goes on from what the first one left in the cache.
    turns = [
        prompt + output + prompts[0][:7] for prompt, output in zip(prompts, expected, strict=True)
    ]
    expected_turns = [reference(model, prompt) for prompt in turns[:4]]
    for llm in (cached, plain):
        for prompt, ours, theirs in zip(prompts, continued(llm, prompts), expected, strict=True):
            compare(model, prompt, ours, theirs)
        for prompt, ours, theirs in zip(
            turns, continued(llm, turns[:4]), expected_turns, strict=False
        ):
            compare(model, prompt, ours, theirs)
    # Once more, one by one: now all of a prompt is cached but its last token.
    for prompt, theirs in zip(prompts, expected, strict=True):
        (ours,) = continued(cached, [prompt])
        compare(model, prompt, ours, theirs)
    assert cached.stats().cached_tokens > 0
    assert plain.stats().cached_tokens == 0
    assert cached.stats().computed_tokens < plain.stats().computed_tokens


def test_a_pool_in_which_every_step_evicts_gives_the_same_tokens(
    name: str, make_llm: Callable[..., LLM], peer: Callable[[str], torch.nn.Module]
) -> None:
    model = peer(name)
    prompts = workload(model.config.vocab_size, seed=2)
    longest = max(len(prompt) for prompt in prompts) + NEW_TOKENS
    # One text fits and not much beside it; long prompts are cut into chunks as well.
    llm = make_llm(num_slots=longest + 16, max_batch_tokens=24, max_running=8)
    for _ in range(2):
        for prompt, ours in zip(prompts, continued(llm, prompts), strict=True):
            compare(model, prompt, ours, reference(model, prompt))
    assert llm.cache.stats()["evicted_tokens"] > 2 * longest


def test_retracted_requests_go_on_with_the_same_tokens(
    name: str, make_llm: Callable[..., LLM], peer: Callable[[str], torch.nn.Module]
) -> None:
    model = peer(name)
    prompts = [prompt[:20] for prompt in workload(model.config.vocab_size, seed=3)[:6]]
    # All six are admitted at 120 slots and need 66 more before they end.
    llm = make_llm(num_slots=160)
    for prompt, ours in zip(prompts, continued(llm, prompts), strict=True):
        compare(model, prompt, ours, reference(model, prompt))


def test_ties_are_rare() -> None:
    print(f"{TALLY.compared} continuations compared, {TALLY.ties} differ at a tie")
    assert TALLY.ties * 100 <= TALLY.compared
