"""What all tests share. Nothing here imports torch: the core is tested without it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# Without a GPU Triton interprets its kernels; it decides when it is imported first.
if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A shell that starts a job in the background has it ignore Ctrl-C, and so do all its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return Path(__file__).resolve().parents[1]
