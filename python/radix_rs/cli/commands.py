"""What the command can do: its options, their help, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from radix_rs import __version__
from radix_rs.cli.problems import one_line_errors

commands = typer.Typer(
    name="radix-rs",
    help="Keep and reuse the KV cache of language models by prefix.",
    epilog="Begin with: [cyan]radix-rs demo[/]",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_POOL = "Cache"
_SAMPLING = "Sampling"
_OUTPUT = "Output"
_MODEL = "Model"

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="A directory, a .gguf file or a name on the Hugging Face hub. "
        "[dim]Default: the model inside the package.[/]",
        rich_help_panel=_MODEL,
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(help="A torch device, or auto: the GPU if any.", rich_help_panel=_MODEL),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        metavar="COUNT",
        help="Threads on a CPU. [dim]Default: 1 for the model inside the package.[/]",
        rich_help_panel=_MODEL,
    ),
]
PageSizeOption = Annotated[
    int,
    typer.Option(
        help="Tokens per page, a power of two up to 1024. Only whole pages are shared.",
        rich_help_panel=_POOL,
    ),
]
NumSlotsOption = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        help="Size of the KV pool in tokens. [dim]Default: what fits.[/]",
        rich_help_panel=_POOL,
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        metavar="",
        help="Print one JSON object and nothing else.",
        rich_help_panel=_OUTPUT,
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"radix-rs {__version__}")
        raise typer.Exit


@commands.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_version, is_eager=True, help="Show it and exit."
        ),
    ] = False,
) -> None:
    pass


# Given as one line per paragraph: rich keeps the line breaks of a docstring.
@commands.command(
    help="Watch a model answer conversations that share a long system prompt.\n\n"
    "Everything is computed twice, without the cache and with it, taking the likeliest token each "
    "time. The exit code is 1 if a single token differs.",
    epilog="Examples:\n\n"
    "[cyan]radix-rs demo[/]\n\n"
    "[cyan]radix-rs demo --page-size 16[/]\n\n"
    "[cyan]radix-rs demo --model ./my-model --dtype bfloat16[/]\n\n"
    "[cyan]radix-rs demo --json | jq .token_hit_rate[/]",
)
def demo(
    model: ModelOption = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="What to compute in. Equal outputs are promised for float32 only.",
            rich_help_panel=_MODEL,
        ),
    ] = "float32",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    page_size: PageSizeOption = 1,
    num_slots: NumSlotsOption = None,
    max_tokens: Annotated[
        int, typer.Option(help="New tokens per answer at most.", rich_help_panel=_SAMPLING)
    ] = 128,
    as_json: JsonOption = False,
) -> None:
    """Watch a model answer conversations that share a long system prompt."""
    with one_line_errors():
        from radix_rs.cli.demo import run_demo

        is_equal = run_demo(
            model,
            dtype=dtype,
            device=device,
            threads=threads,
            page_size=page_size,
            num_slots=num_slots,
            max_tokens=max_tokens,
            as_json=as_json,
        )
    if not is_equal:
        raise typer.Exit(1)


@commands.command(
    epilog="Examples:\n\n"
    '[cyan]radix-rs generate "Why is the sky blue?"[/]\n\n'
    "[cyan]radix-rs generate --file question.txt --model ./my-model --max-tokens 200[/]\n\n"
    '[cyan]echo "Once upon a time" | radix-rs generate --raw --temperature 0.8 --seed 1[/]'
)
def generate(
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="What to answer; - reads standard input."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read the prompt from it.")
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="System prompt, before the prompt.")
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", metavar="", help="Continue the text as it stands, without the chat template."
        ),
    ] = False,
    model: ModelOption = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="What to compute in; auto: what the weights are stored in.",
            rich_help_panel=_MODEL,
        ),
    ] = "auto",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    page_size: PageSizeOption = 1,
    num_slots: NumSlotsOption = None,
    no_prefix_caching: Annotated[
        bool,
        typer.Option(
            "--no-prefix-caching",
            metavar="",
            help="Compute everything anew.",
            rich_help_panel=_POOL,
        ),
    ] = False,
    max_tokens: Annotated[
        int, typer.Option(help="New tokens at most.", rich_help_panel=_SAMPLING)
    ] = 128,
    temperature: Annotated[
        float,
        typer.Option(
            help="0 takes the likeliest token. SamplingParams of the API has 1.0.",
            rich_help_panel=_SAMPLING,
        ),
    ] = 0.0,
    top_p: Annotated[
        float,
        typer.Option(help="Sample from this share of probability.", rich_help_panel=_SAMPLING),
    ] = 1.0,
    top_k: Annotated[
        int,
        typer.Option(help="Sample from so many likeliest; 0 for all.", rich_help_panel=_SAMPLING),
    ] = 0,
    min_p: Annotated[
        float,
        typer.Option(
            help="Drop tokens below this share of the likeliest.", rich_help_panel=_SAMPLING
        ),
    ] = 0.0,
    seed: Annotated[
        int | None, typer.Option(help="Makes sampling repeatable.", rich_help_panel=_SAMPLING)
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="End before this text; may be repeated.", rich_help_panel=_SAMPLING
        ),
    ] = None,
    ignore_eos: Annotated[
        bool,
        typer.Option(
            "--ignore-eos",
            metavar="",
            help="Go on after the model's end-of-sequence token.",
            rich_help_panel=_SAMPLING,
        ),
    ] = False,
    n: Annotated[
        int, typer.Option("-n", help="Continuations of the prompt.", rich_help_panel=_SAMPLING)
    ] = 1,
    no_stream: Annotated[
        bool,
        typer.Option(
            "--no-stream",
            metavar="",
            help="Print when all is there, not as it comes.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Answer one prompt, given as an argument, in a file or on standard input.

    The text goes to standard output, what it took to standard error.
    """
    with one_line_errors():
        from radix_rs.cli.generate import read_prompt, run_generate

        run_generate(
            read_prompt(prompt, file),
            system=system,
            is_raw=raw,
            model=model,
            engine={
                "dtype": dtype,
                "device": device,
                "threads": threads,
                "page_size": page_size,
                "num_slots": num_slots,
                "enable_prefix_caching": not no_prefix_caching,
            },
            sampling={
                "temperature": temperature,
                "top_p": top_p,
                "top_k": top_k,
                "min_p": min_p,
                "max_tokens": max_tokens,
                "stop": tuple(stop or ()),
                "seed": seed,
                "n": n,
                "ignore_eos": ignore_eos,
            },
            is_streamed=not (no_stream or as_json),
            as_json=as_json,
        )


@commands.command(epilog="Example:\n\n[cyan]radix-rs info --json[/]")
def info(as_json: JsonOption = False) -> None:
    """Show versions, devices, backends, the model inside the package, and what is missing."""
    with one_line_errors():
        from radix_rs.cli.info import run_info

        run_info(as_json=as_json)
