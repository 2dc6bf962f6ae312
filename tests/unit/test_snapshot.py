"""Snapshots in files: whole or not at all."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from radix_rs import RadixTree
from radix_rs.errors import SnapshotError


def _sample() -> RadixTree:
    tree = RadixTree(page_size=2)
    tree.insert([1, 2, 3, 4, 5, 6], range(6))
    tree.insert([1, 2, 7, 8], [6, 7, 8, 9], priority=3)
    tree.insert([1, 2], [10, 11], ("adapter", "x"))
    tree.touch([1, 2, 3, 4])
    return tree


def _evicted_page_by_page(tree: RadixTree) -> list[list[int]]:
    return [tree.evict(1).tolist() for _ in range(tree.cached_tokens // 2)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tree.snapshot"


@pytest.mark.parametrize("kind", [str, Path])
def test_a_restored_tree_is_the_tree(path: Path, kind):
    tree = _sample()
    tree.snapshot(kind(path))
    again = RadixTree(page_size=2)
    assert again.restore(kind(path)).tolist() == []
    again.check()
    assert again.match_prefix([1, 2, 3, 4, 5, 6]).slots.tolist() == list(range(6))
    assert again.match_prefix([1, 2], ("adapter", "x")).slots.tolist() == [10, 11]
    assert (again.cached_tokens, again.num_nodes) == (tree.cached_tokens, tree.num_nodes)
    assert sorted(node.priority for node in again.nodes()) == sorted(
        node.priority for node in tree.nodes()
    )
    assert _evicted_page_by_page(again) == _evicted_page_by_page(tree)


def test_leases_are_no_part_of_it(path: Path):
    tree = _sample()
    with tree.lock_prefix([1, 2, 3, 4]):
        tree.snapshot(path)
    again = RadixTree(page_size=2)
    again.restore(path)
    assert again.protected_tokens == 0
    again.check()
    assert _evicted_page_by_page(again)[-1] == [0, 1]


def test_wide_atoms_come_back(path: Path):
    tree = RadixTree(atom="u64")
    tree.insert([2**40, 5], [0, 1])
    tree.snapshot(path)
    again = RadixTree(atom="u64")
    again.restore(path)
    assert again.match_prefix([2**40]).length == 1
    with pytest.raises(SnapshotError, match="8 bytes a token"):
        RadixTree().restore(path)


def test_the_new_file_takes_the_place_of_the_old_one_and_nothing_else_is_left(path: Path):
    _sample().snapshot(path)
    RadixTree(page_size=2).snapshot(path)
    assert list(path.parent.iterdir()) == [path]
    again = RadixTree(page_size=2)
    again.restore(path)
    assert again.cached_tokens == 0


def test_a_full_disk_leaves_the_old_file(path: Path):
    _sample().snapshot(path)
    before = path.read_bytes()
    # No file of this process may grow beyond a hundred bytes; the signal for it is ignored, so
    # that writing fails.
    code = f"""
import resource, signal
from radix_rs import RadixTree
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
tree = RadixTree()
tree.insert(range(1000), range(1000))
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    tree.snapshot({str(path)!r})
except OSError as error:
    assert error.errno and error.filename == {str(path)!r}, repr(error)
else:
    raise AssertionError("it was written")
tree.check()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_not_there_or_cannot_be_written_is_the_usual_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError) as caught:
        RadixTree().restore(tmp_path / "none")
    assert caught.value.filename == str(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        RadixTree().snapshot(tmp_path / "no" / "folder")
    with pytest.raises(IsADirectoryError):
        RadixTree().snapshot(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: b"PK" + data, "no snapshot of radix-rs"),
        (lambda data: b"", "no snapshot of radix-rs"),
        (lambda data: data[:8] + b"\x02" + data[9:], "format 2, which is newer than 1"),
        (lambda data: data[:-1], "cut off"),
        (lambda data: data[: len(data) // 2], "cut off"),
        (lambda data: data + b"\0", "after its end"),
        (lambda data: data[:50] + bytes([data[50] ^ 4]) + data[51:], "damaged between byte 12 and"),
    ],
)
def test_a_file_that_is_no_whole_snapshot_is_refused_and_the_tree_is_as_before(path, change, says):
    _sample().snapshot(path)
    path.write_bytes(change(path.read_bytes()))
    tree = RadixTree(page_size=2)
    with pytest.raises(SnapshotError, match=says):
        tree.restore(path)
    assert (tree.cached_tokens, tree.num_nodes) == (0, 2)
    tree.check()


def test_another_page_size_is_named(path: Path):
    _sample().snapshot(path)
    with pytest.raises(SnapshotError, match=r"pages of 2 tokens.* has 4"):
        RadixTree(page_size=4).restore(path)


def test_only_an_empty_tree_takes_a_snapshot(path: Path):
    tree = _sample()
    tree.snapshot(path)
    with pytest.raises(SnapshotError, match="holds 10 tokens"):
        tree.restore(path)
    assert tree.match_prefix([1, 2, 3, 4]).length == 4
    tree.reset()
    tree.restore(path)
    assert tree.match_prefix([1, 2, 3, 4]).length == 4


def test_snapshots_of_several_threads_to_one_path_leave_one_whole_file(path: Path):
    tree = _sample()
    threads = [
        threading.Thread(target=lambda: [tree.snapshot(path) for _ in range(20)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    RadixTree(page_size=2).restore(path)
    assert list(path.parent.iterdir()) == [path]
