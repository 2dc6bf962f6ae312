"""``radix-rs demo``: the same conversations without the cache and with it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, Any, Protocol

from radix_rs.cli import demo_view
from radix_rs.cli.opening import open_llm
from radix_rs.cli.story import SYSTEM, TALKS, Talk
from radix_rs.errors import InvalidInputError

if TYPE_CHECKING:
    from radix_rs import LLM, RequestOutput, SamplingParams

# Room for the embedded model: without the cache nothing is shared, so for all conversations.
_EMBEDDED_SLOTS = 16_384
_WARM_UP = 256


@dataclass(frozen=True, slots=True)
class Run:
    """What answering all conversations took.

    Attributes
    ----------
    answers
        Per turn one answer for each conversation.
    computed_tokens
        Tokens that went through the model, prompts and answers.
    reused_tokens
        Tokens that did not have to.
    kv_bytes_used, kv_bytes_contiguous
        KV memory where requests were longest together, and what one cache for each would have had.
    seconds
        From the first question to the last answer.
    """

    answers: tuple[tuple[RequestOutput, ...], ...]
    computed_tokens: int
    reused_tokens: int
    kv_bytes_used: int
    kv_bytes_contiguous: int
    seconds: float

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(answer.usage.prompt_tokens for turn in self.answers for answer in turn)

    def ttft_s(self, turn: int | None = None) -> float:
        """Return the mean time to the first token in seconds, of one turn or of all."""
        turns = self.answers if turn is None else (self.answers[turn],)
        return mean(answer.usage.ttft_s or 0.0 for answers in turns for answer in answers)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both runs, side by side.

    Attributes
    ----------
    talks
        What was talked about.
    cold, warm
        The run without the cache and the run with it.
    """

    talks: tuple[Talk, ...]
    cold: Run
    warm: Run

    @property
    def is_equal(self) -> bool:
        """Whether every answer has the same tokens in both runs."""
        return not self.differences

    @property
    def differences(self) -> list[tuple[int, int]]:
        """Turn and conversation of each answer that differs."""
        return [
            (turn, talk)
            for turn, (cold, warm) in enumerate(
                zip(self.cold.answers, self.warm.answers, strict=True)
            )
            for talk, (a, b) in enumerate(zip(cold, warm, strict=True))
            if a.token_ids != b.token_ids
        ]

    def plain(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints.

        ``token_hit_rate`` is the share of prompt tokens that came from the cache, the times are
        means over all answers, without the cache (cold) and with it (warm).
        """
        return {
            "equal": self.is_equal,
            "computed_tokens": self.warm.computed_tokens,
            "reused_tokens": self.warm.reused_tokens,
            "token_hit_rate": self.warm.reused_tokens / self.warm.prompt_tokens,
            "ttft_cold_s": self.cold.ttft_s(),
            "ttft_warm_s": self.warm.ttft_s(),
            "kv_bytes_saved": self.warm.kv_bytes_contiguous - self.warm.kv_bytes_used,
        }


class Watcher(Protocol):
    """Is told how far a run is."""

    def begin(self, *, is_warm: bool) -> None:
        """Take note that a run begins."""

    def ask(self, turn: int) -> None:
        """Take note that a turn begins."""

    def hear(self, talk: int, output: RequestOutput) -> None:
        """Take note of the answer so far."""


def run_demo(
    model: str | None,
    *,
    dtype: str,
    device: str,
    threads: int | None,
    page_size: int,
    num_slots: int | None,
    max_tokens: int,
    as_json: bool,
) -> bool:
    """Run everything twice, show it, and tell whether the outputs are equal.

    Parameters
    ----------
    model, dtype, device, page_size, num_slots
        As for `radix_rs.LLM`.
    threads
        As for `radix_rs.cli.opening.open_llm`.
    max_tokens
        New tokens per answer at most.
    as_json
        Print one object and nothing else.

    Raises
    ------
    InvalidInputError
        If an argument is wrong or the model cannot hold these conversations.
    """
    if model is None and num_slots is None:
        num_slots = _EMBEDDED_SLOTS
    view = demo_view.Silent() if as_json else demo_view.Live(TALKS, model, dtype, page_size)
    runs = []
    with view:
        from radix_rs import SamplingParams  # takes its time, so there should be something to see

        params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
        for is_warm in (False, True):
            view.begin(is_warm=is_warm)
            with open_llm(
                model,
                dtype=dtype,
                device=device,
                threads=threads,
                page_size=page_size,
                num_slots=num_slots,
                enable_prefix_caching=is_warm,
            ) as llm:
                if not _has_template(llm):
                    params = replace(params, stop=("\nUser:",))
                _warm_up(llm, params)
                runs.append(play(llm, TALKS, params, view))
    outcome = Outcome(TALKS, *runs)
    if as_json:
        sys.stdout.write(json.dumps(outcome.plain()) + "\n")
    else:
        demo_view.print_outcome(outcome)
    return outcome.is_equal


def play(llm: LLM, talks: Sequence[Talk], params: SamplingParams, watcher: Watcher) -> Run:
    """Have all conversations at the same time, turn by turn.

    Parameters
    ----------
    llm
        The engine.
    talks
        The conversations.
    params
        How each answer is generated.
    watcher
        Is told of every token.
    """
    chats: list[list[dict[str, str]]] = [[_message("system", SYSTEM.strip())] for _ in talks]
    before = llm.stats()
    start = time.perf_counter()
    answers = []
    for turn in range(len(talks[0].turns)):
        watcher.ask(turn)
        for chat, talk in zip(chats, talks, strict=True):
            chat.append(_message("user", talk.turns[turn]))
        heard = _answer(llm, [_prompt(llm, chat) for chat in chats], params, watcher)
        for chat, output in zip(chats, heard, strict=True):
            chat.append(_message("assistant", output.text))
        answers.append(heard)
    seconds = time.perf_counter() - start
    after = llm.stats()
    return Run(
        answers=tuple(answers),
        computed_tokens=after.computed_tokens - before.computed_tokens,
        reused_tokens=after.cached_tokens - before.cached_tokens,
        kv_bytes_used=after.kv_bytes_used,
        kv_bytes_contiguous=after.kv_bytes_contiguous,
        seconds=seconds,
    )


def _answer(
    llm: LLM, prompts: list[Any], params: SamplingParams, watcher: Watcher
) -> tuple[RequestOutput, ...]:
    """Answer all prompts together: streams that are read in turns share their batches."""
    streams: dict[int, Iterator[RequestOutput]] = {
        index: llm.stream(prompt, params) for index, prompt in enumerate(prompts)
    }
    heard: dict[int, RequestOutput] = {}
    while streams:
        for index, stream in tuple(streams.items()):
            heard[index] = next(stream)
            watcher.hear(index, heard[index])
            if heard[index].finish_reason is not None:
                del streams[index]
    return tuple(heard[index] for index in range(len(prompts)))


def _warm_up(llm: LLM, params: SamplingParams) -> None:
    """Let everything be allocated that is allocated once, and forget what was computed."""
    length = min(_WARM_UP, llm.max_len - 2, llm.vocab_size)
    if length > 0:
        llm.generate([list(range(length))], replace(params, max_tokens=2), progress=False)
    llm.cache.reset()


def _message(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def _has_template(llm: LLM) -> bool:
    """Tell whether the model takes messages; without a template it is asked in plain text."""
    if llm.tokenizer is None:
        raise InvalidInputError("the demo talks: it needs a model with a tokenizer")
    return getattr(llm.tokenizer, "chat_template", None) is not None


def _prompt(llm: LLM, chat: list[dict[str, str]]) -> Any:
    """Return the prompt for the next answer."""
    if _has_template(llm):
        return list(chat)
    lines = [f"{message['role'].capitalize()}: {message['content']}" for message in chat]
    return "\n".join([*lines, "Assistant:"])
