"""From exceptions to one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer
from rich.console import Console
from rich.text import Text

from radix_rs.errors import InvalidInputError, RadixError

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn what a user can cause into a message on standard error and an exit code.

    Anything else is a fault of ours and keeps its traceback.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # whoever read has enough: not worth a word
    except KeyboardInterrupt:
        _say("interrupted", style="yellow")
        raise typer.Exit(INTERRUPTED) from None
    except (InvalidInputError, ImportError) as error:
        _say(f"error: {error}")
        raise typer.Exit(BAD_INPUT) from None
    except RadixError as error:
        _say(f"error: {error}")
        raise typer.Exit(FAILED) from None
    except OSError as error:  # the output takes no more, say
        _say(f"error: {error}")
        raise typer.Exit(FAILED) from None


def _say(message: str, style: str = "red") -> None:
    head, colon, rest = message.partition(":")
    console = Console(stderr=True, soft_wrap=True)
    with suppress(OSError):  # then the exit code has to do
        console.print(Text.assemble((head + colon, f"bold {style}"), rest.replace("\n", " ")))
