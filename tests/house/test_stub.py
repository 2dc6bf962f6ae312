"""The stub says what the extension is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The stub needs the type aliases only; following the package's lazy names would read all of torch.
CONFIG = """
[mypy]
[mypy-radix_rs.engine.*]
follow_imports = skip
"""


@pytest.mark.lint
def test_stub_matches_the_extension(repository: Path, tmp_path: Path):
    config = tmp_path / "mypy.ini"
    config.write_text(CONFIG)
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "radix_rs._core", "--mypy-config-file", config],
        cwd=repository,
        env=os.environ | {"MYPYPATH": "python"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
