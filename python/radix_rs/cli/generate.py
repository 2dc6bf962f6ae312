"""``radix-rs generate``: one prompt in, its continuations out."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from radix_rs.cli.opening import open_llm
from radix_rs.errors import InvalidInputError

if TYPE_CHECKING:
    from radix_rs import LLM, RequestOutput, SamplingParams

_STDIN = "-"


def read_prompt(argument: str | None, file: Path | None) -> str:
    """Return the prompt from where it was given.

    Parameters
    ----------
    argument
        The argument; ``-`` or None reads standard input.
    file
        A file instead of it.

    Raises
    ------
    InvalidInputError
        If there is none, more than one, or it is no text.
    """
    if argument is not None and file is not None:
        raise InvalidInputError("give the prompt as an argument or with --file, not both")
    if sys.stdin is None and file is None and argument in (None, _STDIN):
        raise InvalidInputError("there is no prompt: standard input is closed")
    if argument is None and file is None and sys.stdin.isatty():
        raise InvalidInputError(
            "there is no prompt: give one as an argument, with --file, or on standard input"
        )
    try:
        if file is not None:
            text = file.read_text(encoding="utf-8")
        elif argument is None or argument == _STDIN:
            text = sys.stdin.read()
        else:
            text = argument
        text.encode()  # bytes that are no text come as lone surrogates
    except OSError as error:
        place = "standard input" if file is None else file
        raise InvalidInputError(
            f"cannot read the prompt: {place}: {error.strerror or error}"
        ) from error
    except UnicodeError as error:
        raise InvalidInputError(f"the prompt is no text in UTF-8: {error}") from error
    text = text.removesuffix("\n")
    if not text.strip():
        raise InvalidInputError("the prompt is empty")
    return text


def run_generate(
    prompt: str,
    *,
    system: str | None,
    is_raw: bool,
    model: str | None,
    engine: dict[str, Any],
    sampling: dict[str, Any],
    is_streamed: bool,
    as_json: bool,
) -> None:
    """Generate and print.

    Parameters
    ----------
    prompt
        A text.
    system
        System prompt, or None.
    is_raw
        Continue the text instead of answering it.
    model
        As for `radix_rs.LLM`.
    engine, sampling
        Arguments of `radix_rs.cli.opening.open_llm` and of `radix_rs.SamplingParams`.
    is_streamed
        Print text as it comes; ``n`` must be 1.
    as_json
        Print one object in the end instead.
    """
    if is_raw and system is not None:
        raise InvalidInputError("--system belongs to a chat: it cannot be given with --raw")
    with ExitStack() as stack:
        with Console(stderr=True).status("loading the model"):
            from radix_rs import SamplingParams

            params = SamplingParams(**sampling)
            llm = stack.enter_context(open_llm(model, **engine))
        messages = _messages(llm, prompt, system, is_raw)
        if is_streamed and params.n == 1:
            outputs = [_stream(llm, messages, params)]
        else:
            outputs = llm.generate([messages], params, progress=False)
            if not as_json:
                sys.stdout.write("\n\n".join(output.text for output in outputs) + "\n")
        if as_json:
            result = {
                "model": model or "embedded",
                "prompt": prompt,
                "outputs": [_plain(output) for output in outputs],
            }
            sys.stdout.write(json.dumps(result) + "\n")
        else:
            sys.stdout.flush()
            _print_usage(outputs)


def _messages(llm: LLM, prompt: str, system: str | None, is_raw: bool) -> Any:
    has_template = getattr(llm.tokenizer, "chat_template", None) is not None
    if is_raw or not has_template:
        if system is not None:
            raise InvalidInputError("--system needs a model with a chat template")
        return prompt
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": prompt}]


def _stream(llm: LLM, prompt: Any, params: SamplingParams) -> RequestOutput:
    stream = llm.stream(prompt, params)
    last = None
    num_printed = 0
    try:
        for last in stream:
            sys.stdout.write(last.text[num_printed:])
            sys.stdout.flush()
            num_printed = len(last.text)
    finally:
        sys.stdout.write("\n")
    assert last is not None, "a stream has at least one output"
    return last


def _plain(output: RequestOutput) -> dict[str, Any]:
    plain = asdict(output)
    plain.pop("logprobs")
    return plain


def _print_usage(outputs: list[RequestOutput]) -> None:
    usage = outputs[0].usage
    num_tokens = sum(output.usage.completion_tokens for output in outputs)
    ttft = "" if usage.ttft_s is None else f", first after {usage.ttft_s * 1e3:,.0f} ms"
    new = "new" if len(outputs) == 1 else f"new in all {len(outputs)} continuations together"
    reasons = ", ".join(sorted({output.finish_reason or "abort" for output in outputs}))
    Console(stderr=True, soft_wrap=True).print(
        f"{usage.prompt_tokens:,} prompt tokens, {num_tokens:,} {new}{ttft}, end: {reasons}",
        style="dim",
        highlight=False,
    )
