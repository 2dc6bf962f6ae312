"""What the sources promise by their shape."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("rust", "python", "kernels", "tests", "benchmarks", "examples", "tools")
MAX_LINES = 600
# A list of cases may be longer than a thing that somebody has to understand as a whole.
MAX_TEST_LINES = 1200
# Nothing on a path of the tree or of the pool may wait for another thread.
BLOCKING = re.compile(
    r"\b(Mutex|RwLock|Condvar|Barrier|ReentrantLock|parking_lot|DashMap|spin_loop|LazyLock|OnceLock|Once)\b"
)


def _sources(*suffixes: str) -> list[Path]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            skipped = {"target", "__pycache__"} & set(path.relative_to(ROOT).parts)
            if path.suffix in suffixes and path.is_file() and not skipped:
                found.append(path)
    return found


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _without_comments(rust: str) -> str:
    return re.sub(r"//[^\n]*", "", rust)


@pytest.mark.parametrize("path", _sources(".py", ".rs", ".pyi"), ids=_name)
def test_a_file_is_one_noun(path: Path):
    limit = MAX_TEST_LINES if "tests" in path.relative_to(ROOT).parts else MAX_LINES
    num_lines = len(path.read_text().splitlines())
    assert num_lines <= limit


def test_tree_and_pool_have_no_blocking_primitive():
    crate = sorted((ROOT / "rust/radix-rs/src").rglob("*.rs"))
    assert crate, "the crate has moved; point this test at it"
    # Stopping a thread is what pause points are for; only a build for that test has them.
    assert "#[cfg(radix_pause)]\nmod pause;" in (ROOT / "rust/radix-rs/src/lib.rs").read_text()
    crate.remove(ROOT / "rust/radix-rs/src/pause.rs")
    found = {
        _name(path): sorted(set(BLOCKING.findall(_without_comments(path.read_text()))))
        for path in crate
    }
    assert not {name: words for name, words in found.items() if words}


def test_the_search_for_blocking_primitives_finds_one():
    assert BLOCKING.search(_without_comments("use std::sync::Mutex; // none"))
    assert not BLOCKING.search(_without_comments("let x = 1; // no Mutex here"))


def test_python_classes_of_the_extension_are_frozen():
    binding = sorted((ROOT / "rust/radix-rs-py/src").rglob("*.rs"))
    classes = [c for path in binding for c in re.findall(r"#\[pyclass(.*?)\]", path.read_text())]
    assert classes
    assert [c for c in classes if "frozen" not in c] == []


def test_the_crate_knows_no_python_and_no_torch():
    manifest = (ROOT / "rust/radix-rs/Cargo.toml").read_text()
    assert not re.search(r"^(pyo3|numpy|tch)\b", manifest, re.MULTILINE)


def test_the_kernels_folder_is_no_package():
    # An import package called `kernels` belongs to somebody else.
    assert not (ROOT / "kernels/__init__.py").exists()
    assert (ROOT / "kernels/attention/__init__.py").exists()


def test_the_link_to_the_kernels_leads_there():
    link = ROOT / "python/radix_rs/kernels/attention"
    assert link.is_symlink()
    assert link.resolve() == ROOT / "kernels/attention"
