"""What is shipped: the built wheel and sdist, and the wheel alone in an empty environment."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel


def _build(repository: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "maturin", *arguments]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    _build(repository, "build", "--release", "--out", str(out), "--interpreter", sys.executable)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


@pytest.fixture(scope="module")
def in_sdist(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    out = tmp_path_factory.mktemp("sdist")
    _build(repository, "sdist", "--out", str(out))
    (path,) = out.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}


def _files(folder: Path) -> set[str]:
    """Files below a folder as a wheel should name them, relative to it."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


def test_the_wheel_has_the_kernels(repository: Path, in_wheel: set[str]):
    there = "radix_rs/kernels/attention/"
    shipped = {name.removeprefix(there) for name in in_wheel if name.startswith(there)}
    assert shipped == _files(repository / "kernels/attention")


def test_the_sdist_has_the_kernels(repository: Path, in_sdist: set[str]):
    there = "python/radix_rs/kernels/attention/"
    shipped = {name.removeprefix(there) for name in in_sdist if name.startswith(there)}
    assert shipped == _files(repository / "kernels/attention")


def test_wheel_and_sdist_have_the_package(repository: Path, in_wheel: set[str], in_sdist: set[str]):
    extension = re.compile(r"_core\..*(so|pyd)$")
    package = {f for f in _files(repository / "python/radix_rs") if not extension.match(f)}
    assert {"py.typed", "_core.pyi", "__init__.py"} <= package
    assert {f"radix_rs/{name}" for name in package} <= in_wheel
    assert {f"python/radix_rs/{name}" for name in package} <= in_sdist


def test_the_wheel_has_the_embedded_model(repository: Path, in_wheel: set[str]):
    embedded = {f for f in _files(repository / "python/radix_rs") if "embedded" in f}
    assert any(name.endswith(".safetensors") for name in embedded)
    assert {f"radix_rs/{name}" for name in embedded} <= in_wheel


def test_nothing_else_is_in_the_wheel(in_wheel: set[str]):
    top = {name.partition("/")[0] for name in in_wheel}
    assert {name for name in top if not name.endswith(".dist-info")} == {"radix_rs"}
    assert not [name for name in in_wheel if "__pycache__" in name or name.endswith(".rs")]


def test_one_wheel_serves_every_python(wheel: Path):
    assert "-cp311-abi3-" in wheel.name


def test_the_sdist_can_be_built(in_sdist: set[str]):
    needed = {
        "Cargo.lock",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "rust/radix-rs/Cargo.toml",
        "rust/radix-rs-py/Cargo.toml",
    }
    assert needed <= in_sdist


@pytest.fixture(scope="module")
def empty_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel and what the wheel asks for, nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
    return python


def test_the_wheel_alone_runs_the_core_example_of_the_readme(
    repository: Path, empty_python: Path, tmp_path: Path
):
    blocks = re.findall(r"```python\n(.*?)```", (repository / "README.md").read_text(), re.DOTALL)
    examples = [block for block in blocks if "PrefixCache(" in block]
    assert examples, "the README has lost its example of the core"
    script = tmp_path / "example.py"
    script.write_text(examples[0] + "\nimport sys\nassert 'torch' not in sys.modules\n")
    subprocess.run([empty_python, script], check=True, cwd=tmp_path)


def test_the_wheel_alone_names_the_extra_that_is_missing(empty_python: Path, tmp_path: Path):
    code = "import radix_rs; radix_rs.LLM"
    done = subprocess.run(
        [empty_python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "radix-rs[engine]" in done.stderr
