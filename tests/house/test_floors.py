"""Who may import whom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "triton", "safetensors", "tokenizers", "typer", "rich", "tqdm")


@pytest.mark.lint
def test_a_floor_imports_only_lower_floors(repository: Path):
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool], cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_loads_nothing_heavy():
    code = f"""
import sys
import radix_rs
tree = radix_rs.RadixTree()
tree.insert([1, 2, 3], [0, 1, 2])
assert tree.match_prefix([1, 2]).length == 2
found = sorted(set({HEAVY!r}) & set(sys.modules))
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_extra_is_named():
    code = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import radix_rs
try:
    radix_rs.LLM
except ImportError as error:
    assert 'radix-rs[engine]' in str(error), error
else:
    raise AssertionError("LLM was loaded without torch")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
