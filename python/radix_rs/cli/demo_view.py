"""What the demo looks like."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich import live
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from radix_rs.cli.story import Talk

if TYPE_CHECKING:
    from radix_rs import RequestOutput
    from radix_rs.cli.demo import Outcome

_NAMES = ("without cache", "with cache")
_ORDINALS = ("first", "second", "third", "fourth")


class Silent:
    """Shows nothing."""

    def begin(self, *, is_warm: bool) -> None:
        """Take note that a run begins."""

    def ask(self, turn: int) -> None:
        """Take note that a turn begins."""

    def hear(self, talk: int, output: RequestOutput) -> None:
        """Take note of the answer so far."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


class Live(Silent):
    """Shows answers as they grow; gone when the runs are over.

    Parameters
    ----------
    talks
        The conversations.
    model
        As the user gave it.
    dtype
        What it computes in.
    page_size
        Tokens per page.
    """

    def __init__(
        self, talks: Sequence[Talk], model: str | None, dtype: str, page_size: int
    ) -> None:
        self._talks = talks
        self._num_answers = sum(len(talk.turns) for talk in talks)
        self._console = Console(highlight=False)
        self._what = f"{model or 'embedded model'}, {dtype}, page size {page_size}"
        self._run = 0
        self._turn: int | None = None
        self._heard: dict[int, RequestOutput] = {}
        self._finished = [0, 0]
        self._spinner = Spinner("line", "loading the model", style="cyan")
        self._live = live.Live(
            console=self._console, transient=True, get_renderable=self._render, refresh_per_second=8
        )

    def begin(self, *, is_warm: bool) -> None:
        """Take note that a run begins."""
        self._run = int(is_warm)
        self._turn = None
        self._heard = {}

    def ask(self, turn: int) -> None:
        """Take note that a turn begins."""
        self._turn = turn
        self._heard = {}

    def hear(self, talk: int, output: RequestOutput) -> None:
        """Take note of the answer so far."""
        self._heard[talk] = output
        self._finished[self._run] += output.finish_reason is not None

    def __enter__(self) -> Live:
        self._console.print(
            Text.assemble(
                ("radix-rs demo", "bold"),
                f"  {len(self._talks)} conversations begin with the same long system prompt\n",
                (f"{self._what}; computed twice, greedily", "dim"),
            )
        )
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def _render(self) -> RenderableType:
        bars = Table.grid(padding=(0, 2))
        for run, name in enumerate(_NAMES):
            done = self._finished[run]
            is_now = run == self._run
            bars.add_row(
                Text(name, style="bold" if is_now else "dim"),
                ProgressBar(total=self._num_answers, completed=done, width=30),
                Text(f"{done} of {self._num_answers} answers", style="" if is_now else "dim"),
            )
        if self._turn is None:
            return Group("", bars, "", self._spinner)
        return Group("", bars, "", self._answers(self._turn))

    def _answers(self, turn: int) -> Table:
        """Return one line per conversation: the question and the end of what is there."""
        question_width = max(len(talk.turns[turn]) for talk in self._talks)
        room = max(10, self._console.width - question_width - 27)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column(f"{_ORDINALS[turn]} question", width=question_width, no_wrap=True)
        table.add_column("reused", justify="right", width=6)
        table.add_column("first", justify="right", width=8)
        table.add_column("answer", width=room, no_wrap=True)
        for index, talk in enumerate(self._talks):
            output = self._heard.get(index)
            if output is None:
                table.add_row(talk.turns[turn], "", "", Text("...", style="dim"))
                continue
            usage = output.usage
            is_over = output.finish_reason is not None
            table.add_row(
                talk.turns[turn],
                f"{usage.cached_tokens / usage.prompt_tokens:.0%}",
                _duration(usage.ttft_s or 0.0),
                Text(_end_of(output.text, room), style="green" if is_over else ""),
            )
        return table


def print_outcome(outcome: Outcome) -> None:
    """Print conversations, numbers and the verdict."""
    console = Console(highlight=False)
    console.print()
    _print_conversations(console, outcome)
    console.print()
    console.print(_numbers(outcome))
    console.print()
    console.print(_verdict(outcome))


def _print_conversations(console: Console, outcome: Outcome) -> None:
    header = ("prompt", "reused", "without", "with")
    console.print(_line(Text("tokens, and time to the first token"), *header, "dim"))
    for index, talk in enumerate(outcome.talks):
        if index:
            console.print()
        for turn, question in enumerate(talk.turns):
            cold = outcome.cold.answers[turn][index]
            warm = outcome.warm.answers[turn][index]
            line = _line(
                Text(f"> {question}", style="bold cyan"),
                f"{warm.usage.prompt_tokens:,}",
                f"{warm.usage.cached_tokens:,}",
                _duration(cold.usage.ttft_s or 0.0),
                _duration(warm.usage.ttft_s or 0.0),
            )
            answer = Text(" ".join(warm.text.split()))
            console.print(line, Padding(answer, (0, 0, 0, 2)))


def _line(text: Text, prompt: str, reused: str, cold: str, warm: str, style: str = "") -> Table:
    """Return a question with its numbers, in columns that are the same for each line."""
    line = Table.grid(expand=True, padding=(0, 0, 0, 1))
    line.add_column(ratio=1, no_wrap=True)
    for width in (8, 8, 9, 9):
        line.add_column(width=width, justify="right", no_wrap=True)
    line.add_row(text, prompt, reused, cold, Text(warm, style=style or "green"), style=style)
    return line


def _numbers(outcome: Outcome) -> Table:
    cold, warm = outcome.cold, outcome.warm
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    table.add_column(_NAMES[0], justify="right")
    table.add_column(_NAMES[1], justify="right", style="green")
    table.add_column("")
    table.add_row(
        "tokens computed",
        f"{cold.computed_tokens:,}",
        f"{warm.computed_tokens:,}",
        f"{_times(cold.computed_tokens, warm.computed_tokens)} fewer",
    )
    table.add_row(
        "tokens reused",
        f"{cold.reused_tokens:,}",
        f"{warm.reused_tokens:,}",
        f"{outcome.plain()['token_hit_rate']:.0%} of the prompts",
    )
    for turn in range(len(warm.answers)):
        table.add_row(
            f"{_ORDINALS[turn]} turns, mean first token",
            _duration(cold.ttft_s(turn)),
            _duration(warm.ttft_s(turn)),
            _speedup(cold.ttft_s(turn), warm.ttft_s(turn)),
        )
    table.add_row(
        "until all is answered",
        _duration(cold.seconds),
        _duration(warm.seconds),
        _speedup(cold.seconds, warm.seconds),
    )
    table.add_row(
        "KV memory at the peak",
        _size(warm.kv_bytes_contiguous),
        _size(warm.kv_bytes_used),
        f"{_size(warm.kv_bytes_contiguous - warm.kv_bytes_used)} saved",
    )
    return table


def _verdict(outcome: Outcome) -> Text:
    answers = [answer for turn in outcome.warm.answers for answer in turn]
    num_tokens = sum(len(answer.token_ids) for answer in answers)
    if outcome.is_equal:
        return Text.assemble(
            ("outputs are equal", "bold green"),
            f"  {len(answers)} answers, {num_tokens:,} tokens, every one the same with and without",
        )
    lines = [("outputs differ", "bold red")]
    for turn, talk in outcome.differences:
        lines.append((f"\n> {outcome.talks[talk].turns[turn]}", "bold cyan"))
        for name, run in zip(_NAMES, (outcome.cold, outcome.warm), strict=True):
            lines.append((f"\n  {name}: {run.answers[turn][talk].text}", ""))
    return Text.assemble(*lines)


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms" if seconds < 1.0 else f"{seconds:,.2f} s"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"


def _times(more: float, less: float) -> str:
    return f"{more / less:.1f} times" if less else "no"


def _speedup(cold: float, warm: float) -> str:
    return f"{_times(cold, warm)} sooner" if warm <= cold else f"{_times(warm, cold)} later"


def _end_of(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else "..." + line[len(line) - width + 3 :]
