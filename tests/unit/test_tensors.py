"""PyTorch tensors at the boundary, which never imports PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from radix_rs import PrefixCache, RadixTree, RequestRows  # noqa: E402
from radix_rs.errors import InvalidInputError  # noqa: E402


@pytest.fixture
def tree():
    tree = RadixTree()
    tree.insert(torch.arange(8), torch.arange(10, 18, dtype=torch.int32))
    return tree


@pytest.mark.parametrize(
    "tokens",
    [
        torch.arange(8),
        torch.arange(8, dtype=torch.int32),
        torch.arange(8).to(torch.uint32),
        torch.arange(16)[::2] // 2,
        torch.arange(16).view(8, 2)[:, 0] // 2,
        torch.nn.Parameter(torch.arange(8), requires_grad=False),
    ],
    ids=["int64", "int32", "uint32", "every second", "a column", "subclass"],
)
def test_tensors_on_the_host_are_read(tree, tokens):
    assert tree.match_prefix(tokens).slots.tolist() == list(range(10, 18))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.ones(2), "must be int32"),
        (torch.ones(2, dtype=torch.bool), "must be int32"),
        (torch.ones(2, dtype=torch.int8), "must be int32"),
        (torch.ones(2, 2, dtype=torch.int32), "one-dimensional, got 2"),
        (torch.tensor(1), "one-dimensional, got 0"),
        (torch.arange(3, device="meta"), "no readable memory"),
        (torch.arange(3).to_sparse(), "no readable memory"),
    ],
    ids=["float", "bool", "int8", "2-D", "0-D", "meta", "sparse"],
)
def test_other_tensors_are_typed_errors(tree, tokens, message):
    with pytest.raises(InvalidInputError, match=message):
        tree.match_prefix(tokens)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_tensor_on_a_device_is_a_typed_error(tree):
    with pytest.raises(InvalidInputError, match="lies on a device"):
        tree.match_prefix(torch.arange(3, device="cuda"))


def test_slots_are_written_to_the_memory_of_a_tensor(tree):
    row = torch.zeros(10, dtype=torch.int32)
    assert tree.match_prefix(range(8)).write_slots(row) == 8
    assert row.tolist() == [*range(10, 18), 0, 0]


def test_a_row_of_a_tensor_is_the_sequence_s_row():
    table = torch.full((2, 8), -1, dtype=torch.int32)
    cache = PrefixCache(8)
    sequence = cache.begin([1, 2, 3], out=table[1])
    slots = sequence.reserve(3)
    assert slots.ctypes.data == table[1].data_ptr()
    assert table[1].tolist() == [0, 1, 2, -1, -1, -1, -1, -1]
    sequence.reserve(1)
    assert table[1, 3] == 3
    assert table[0].tolist() == [-1] * 8


def test_views_become_tensors_without_a_copy():
    cache = PrefixCache(8)
    sequence = cache.begin([1, 2, 3])
    slots = sequence.reserve(3)
    assert torch.from_dlpack(np.asarray(slots)).data_ptr() == slots.ctypes.data


def test_rows_are_synced_to_a_tensor():
    buffer = torch.full((3, 4), -1, dtype=torch.int32)
    rows = RequestRows(3, 4, device_buffer=buffer)
    rows[1][:] = [5, 6, 7, 8]
    rows[2][:] = 9
    rows.sync([1], 0, 3)
    assert buffer.tolist() == [[-1] * 4, [5, 6, 7, -1], [-1] * 4]


def test_a_row_stays_where_it_is_when_its_tensor_gets_other_memory():
    row = torch.full((8,), -1, dtype=torch.int32)
    cache = PrefixCache(8)
    sequence = cache.begin([1, 2, 3], out=row)
    sequence.reserve(3)
    row.data = torch.zeros(8, dtype=torch.int32)
    sequence.reserve(2)
    assert sequence.slots.tolist() == [0, 1, 2, 3, 4]
    assert row.tolist() == [0] * 8


@pytest.mark.parametrize(
    "make",
    [lambda n: torch.zeros(n, dtype=torch.int32)[:], lambda n: torch.zeros(n, dtype=torch.int32)],
)
def test_the_tensor_of_a_row_refuses_to_be_resized(make):
    row = make(64)
    cache = PrefixCache(64)
    sequence = cache.begin([1, 2, 3], out=row)
    view = sequence.reserve(3)
    with pytest.raises(RuntimeError, match="not resizable"):
        row.resize_(1 << 20)
    with pytest.raises(RuntimeError, match="not resizable"):
        row.untyped_storage().resize_(0)
    row.set_(torch.zeros(0, dtype=torch.int32))
    sequence.reserve(40)
    assert view.tolist() == [0, 1, 2]
    assert sequence.slots.tolist() == list(range(43))


def test_a_tensor_may_get_other_memory_while_it_is_read():
    import threading

    size = 200_000
    base = torch.arange(size, dtype=torch.int32)
    tokens = base.clone()
    tree = RadixTree()
    tree.insert(base, base)
    done = threading.Event()

    def replace():
        while not done.is_set():
            tokens.set_(base.clone())

    other = threading.Thread(target=replace)
    other.start()
    try:
        for _ in range(200):
            assert tree.match_prefix(tokens).length == size
    finally:
        done.set()
        other.join()


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_tensor_may_get_other_memory_while_another_argument_is_read(size):
    class Replaces:
        def __index__(self):
            tokens.set_(torch.arange(size, dtype=torch.int32) + 1)
            return 0

    tokens = torch.arange(size, dtype=torch.int32)
    tree = RadixTree()
    tree.insert(tokens, [Replaces(), *range(1, size)])
    assert tree.match_prefix(range(1, size + 1)).length == size
    tree.check()
