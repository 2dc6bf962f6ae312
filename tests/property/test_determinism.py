"""Engines that run one tree per rank rely on every process deciding the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DRIVER = Path(__file__).with_name("determinism_driver.py")


def outcome(hash_seed: str) -> list[str]:
    """Run the driver in a fresh process."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    # What the process allocates before, and so every address, differs between the runs as well.
    environment["RADIX_RS_PADDING"] = "x" * (int(hash_seed) * 4096)
    done = subprocess.run(
        [sys.executable, str(DRIVER), "12", "150"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


def test_two_processes_hand_out_the_same_slots_and_evict_the_same_victims() -> None:
    first, second = outcome("0"), outcome("12")
    assert len(first) == 12
    assert first == second
    # The seeds do differ, so equal output is no accident of an idle driver.
    assert len(set(first)) == 12
