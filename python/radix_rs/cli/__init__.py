"""The command ``radix-rs``; needs ``pip install "radix-rs[cli]"``."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import NoReturn, TextIO

__all__ = ["app"]


def app() -> None:
    """Run the command with the arguments of the process; ends it with an exit code."""
    if sys.stderr is None:  # closed, so there is nobody to talk to
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stdout is None:
        _end("error: standard output is closed", 1)
    try:
        try:
            _run()
        except SystemExit as end:
            if end.code:  # what went wrong has been said
                _drop_output()
            raise
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        _end("interrupted", 130)
    except OSError as error:
        _drop_output()
        _end("" if isinstance(error, BrokenPipeError) else f"error: {error}", 1)


def _drop_output() -> None:
    """Write what can be written and no more: Python would try again at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    try:
        from radix_rs.cli.commands import commands
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "radix_rs":
            raise
        _end(
            f"error: the command radix-rs needs the package {package!r}: "
            'pip install "radix-rs[cli]" brings it',
            2,
        )
    for stream in (sys.stdout, sys.stderr):
        _never_fail(stream)
    commands(prog_name="radix-rs")


def _end(line: str, code: int) -> NoReturn:
    if line:
        with suppress(OSError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
    raise SystemExit(code) from None


def _never_fail(stream: TextIO) -> None:
    """Let a stream write what its encoding lacks as a question mark: a model may say anything."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
