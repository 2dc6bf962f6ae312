"""An exception at any line of the loop costs the step it hits and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import radix_rs.engine.engine
from radix_rs import LLM, SamplingParams

OURS = {"scheduler.py", "engine.py", "job.py", "sharing.py"}
GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
SHARED = 10
FIRST = list(range(100, 120))
SECOND = FIRST[:SHARED] + list(range(300, 330))


Place = tuple[str, int]


def at_place(place: Place, act: Callable[[], None], seen: set[Place]) -> Callable[..., Any]:
    """Return a trace function that acts at the first run of a line, and notes all it comes by."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        name = Path(frame.f_code.co_filename).name
        if name not in OURS:
            return None
        if event == "line":
            here = (name, frame.f_lineno)
            seen.add(here)
            if here == place:
                sys.settrace(None)
                act()
        return trace

    return trace


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, ...]]:
    with LLM(dtype="float32", num_slots=4096, enable_prefix_caching=False) as llm:
        outputs = llm.generate([FIRST, SECOND], GREEDY, progress=False)
    return [output.token_ids for output in outputs]


@pytest.mark.parametrize("num_slots", [52, 4096])
def test_an_interrupt_at_any_line_poisons_nothing_and_leaves_nothing(
    expected: list[tuple[int, ...]], num_slots: int
) -> None:
    todo: list[Place] = [("", 0)]
    seen: set[Place] = set()
    with LLM(dtype="float32", num_slots=num_slots) as llm:
        while todo:
            place = todo.pop()
            known = set(seen)
            other = llm.stream(FIRST, GREEDY)
            next(other)
            interrupted = llm.stream(SECOND, GREEDY)
            sys.settrace(at_place(place, interrupt, seen))
            try:
                list(interrupted)
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
            *_, last = other
            assert last.token_ids == expected[0], place
            again = llm.generate([SECOND, FIRST], GREEDY, progress=False)
            assert [output.token_ids for output in again] == expected[::-1], place
            llm.cache.check()
            stats = llm.cache.stats()
            assert stats["num_sequences"] == stats["held_tokens"] == 0, place
            # Nothing is cached but the two texts: a token under a wrong key would be a third.
            texts = [FIRST + list(expected[0]), SECOND + list(expected[1])]
            lengths = [llm.cache.tree.match_prefix(text).length for text in texts]
            assert stats["cached_tokens"] == sum(lengths) - min(SHARED, *lengths), place
            llm.cache.reset()
            todo += sorted(seen - known)
    assert len(seen) > 80


def test_a_stream_may_be_closed_at_any_line_of_a_step(llm: LLM) -> None:
    (expected,) = llm.generate([FIRST], GREEDY, progress=False)
    todo: list[Place] = [("", 0)]
    seen: set[Place] = set()
    while todo:
        known = set(seen)
        abandoned = llm.stream(SECOND, GREEDY)
        next(abandoned)
        sys.settrace(at_place(todo.pop(), abandoned.close, seen))
        try:
            (output,) = llm.generate([FIRST], GREEDY, progress=False)
        finally:
            sys.settrace(None)
        abandoned.close()
        assert output.token_ids == expected.token_ids
        assert llm.cache.stats()["num_sequences"] == 0
        todo += sorted(seen - known)


def test_a_request_that_cannot_be_sampled_fails_alone(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    (expected,) = llm.generate([FIRST], GREEDY, progress=False)
    real = radix_rs.engine.engine.sample

    def sample(logits: Any, draws: list[Any]) -> Any:
        if any(draw.seed >> 32 == 77 for draw in draws):
            raise ArithmeticError("no such luck")
        return real(logits, draws)

    monkeypatch.setattr(radix_rs.engine.engine, "sample", sample)
    innocent = llm.stream(FIRST, GREEDY)
    next(innocent)
    with pytest.raises(ArithmeticError, match="no such luck"):
        llm.generate([SECOND], SamplingParams(seed=77 << 32), progress=False)
    *_, last = innocent
    assert last.token_ids == expected.token_ids
    assert llm.cache.stats()["num_sequences"] == 0


@pytest.mark.parametrize("temperature", [5e-324, 1e-39, 1e-30, 1e-9])
def test_the_coldest_temperatures_take_the_most_likely_token(llm: LLM, temperature: float) -> None:
    cold = SamplingParams(temperature=temperature, max_tokens=6, ignore_eos=True, seed=3)
    greedy, sampled = (
        llm.generate([FIRST], params, progress=False)[0] for params in (GREEDY, cold)
    )
    assert sampled.token_ids == greedy.token_ids
