"""What the README and ARCHITECTURE.md say can be run and can be found."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "ARCHITECTURE.md", "rust/radix-rs/README.md")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def _block_with(word: str) -> str:
    (block,) = [block for block in BLOCKS if word in block]
    return block


def _run(code: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stderr


def test_the_core_example_runs_without_torch(tmp_path: Path):
    code = _block_with("PrefixCache(") + "\nimport sys\nassert 'torch' not in sys.modules\n"
    _run(code, tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra engine")
def test_the_engine_example_runs(tmp_path: Path):
    _run(_block_with("LLM("), tmp_path)


def test_every_python_example_is_one_of_these():
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str):
    folder = (ROOT / page).parent
    links = [target for _, target in LINK.findall((ROOT / page).read_text(encoding="utf-8"))]
    local = [target for target in links if "://" not in target]
    assert links
    assert [target for target in local if not (folder / target).exists()] == []


def test_the_tests_of_every_invariant_exist():
    index = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|.*$", index, re.MULTILINE)
    assert [int(number) for number in rows] == list(range(1, len(rows) + 1))
    missing = []
    for row in re.findall(r"^\| \d+ \|.*$", index, re.MULTILINE):
        named = [link for link in LINK.findall(row) if link[0].startswith("`")]
        assert named, row
        for name, target in named:
            source = (ROOT / target).read_text(encoding="utf-8")
            if not re.search(rf"\b(fn|def) {name.strip('`')}\b", source):
                missing.append((name, target))
    assert missing == []


def test_the_commands_that_numbers_come_from_exist():
    for script in set(re.findall(r"benchmarks/\w+\.py", README)):
        assert (ROOT / script).is_file()
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake (\w+)", README)) <= set(targets)
