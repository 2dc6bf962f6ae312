"""The command ``radix-rs``; needs ``pip install "radix-rs[cli]"``."""

from __future__ import annotations

import io
import sys
from typing import TextIO

__all__ = ["app"]


def app() -> None:
    """Run the command with the arguments of the process; ends it with an exit code."""
    try:
        from radix_rs.cli.commands import commands
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "radix_rs":
            raise
        sys.stderr.write(
            f"error: the command radix-rs needs the package {package!r}: "
            'pip install "radix-rs[cli]" brings it\n'
        )
        raise SystemExit(2) from None
    for stream in (sys.stdout, sys.stderr):
        _never_fail(stream)
    commands(prog_name="radix-rs")


def _never_fail(stream: TextIO) -> None:
    """Let a stream write what its encoding lacks as a question mark: a model may say anything."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
