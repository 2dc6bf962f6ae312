"""The KV pool: what is stored is read back, from wherever, and its size is what was asked for."""

from __future__ import annotations

import pytest
import torch
from radix_rs.errors import InvalidInputError
from radix_rs.memory import KVPool, LayerShape, free_bytes, num_slots_for, torch_dtype

SHAPES = [LayerShape(2, 8), LayerShape(1, 4)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_read_back_from_any_slots(dtype: torch.dtype) -> None:
    pool = KVPool(SHAPES, 16, dtype=dtype)
    slots = torch.tensor([11, 3, 7])
    for layer, shape in enumerate(SHAPES):
        key = torch.randn(3, shape.num_kv_heads, shape.head_dim)
        value = torch.randn(3, shape.num_kv_heads, shape.head_dim)
        pool.store(layer, slots, key, value)
        out_key = torch.full((4, shape.row_size), torch.nan, dtype=dtype)
        out_value = out_key.clone()
        pool.gather(layer, torch.tensor([7, 11, 7, 3], dtype=torch.int32), out_key, out_value)
        order = [2, 0, 2, 1]
        assert torch.equal(out_key, key[order].to(dtype).flatten(1))
        assert torch.equal(out_value, value[order].to(dtype).flatten(1))
        assert torch.equal(pool.keys_by_head[layer][0, :, 3], key[1].to(dtype))


def test_a_copy_moves_every_layer_and_nothing_else() -> None:
    pool = KVPool(SHAPES, 8)
    for tensor in (*pool.keys, *pool.values):
        tensor.copy_(torch.randn(tensor.shape))
    before = [tensor.clone() for tensor in (*pool.keys, *pool.values)]
    pool.copy(torch.tensor([1, 2]), torch.tensor([6, 0]))
    for old, new in zip(before, (*pool.keys, *pool.values), strict=True):
        expected = old.clone()
        expected[6], expected[0] = old[1], old[2]
        assert torch.equal(new, expected)


def test_bytes_are_counted() -> None:
    pool = KVPool(SHAPES, 100, dtype=torch.bfloat16)
    assert pool.bytes_per_token == 2 * (16 + 4) * 2
    assert pool.size_bytes == 8000
    assert sum(t.numel() * t.itemsize for t in (*pool.keys, *pool.values)) == 8000
    assert pool.used_bytes(10) == 800
    # Two requests of 50 tokens that share 40 of them: 60 slots in use, 100 without sharing.
    assert pool.contiguous_bytes([50, 50]) - pool.used_bytes(60) == 3200


def test_a_pool_is_sized_in_tokens_bytes_or_a_share() -> None:
    assert num_slots_for(80, 16, num_slots=100) == 112
    assert num_slots_for(80, 16, kv_bytes=80 * 100) == 96
    slots = num_slots_for(80, 16, kv_share=0.01)
    assert slots % 16 == 0
    assert 0 < slots * 80 <= 0.02 * free_bytes(torch.device("cpu"))


@pytest.mark.parametrize(
    "size",
    [
        {},
        {"num_slots": 10, "kv_bytes": 10},
        {"num_slots": 0},
        {"kv_bytes": 79},
        {"kv_share": 0.0},
        {"kv_share": 1.5},
    ],
)
def test_a_size_that_is_none_is_refused(size: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        num_slots_for(80, 1, **size)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({}, "give one of num_slots"),
        ({"num_slots": 10, "kv_share": 0.5}, "give at most one of num_slots"),
        ({"num_slots": 0}, "num_slots is 0; it must be at least 1"),
        ({"kv_bytes": 1}, "kv_bytes is 1; one page of 16 tokens needs 1280 bytes"),
        ({"kv_share": 2.0}, "kv_share is 2.0; it must be in"),
    ],
)
def test_a_refused_size_is_named(size: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        num_slots_for(80, 16, **size)


def test_a_page_holds_a_token() -> None:
    with pytest.raises(InvalidInputError, match="page_size"):
        num_slots_for(80, 0, num_slots=10)


def test_unknown_dtypes_are_refused() -> None:
    assert torch_dtype("float16") is torch.float16
    for name in ("float64", torch.int8):
        with pytest.raises(InvalidInputError, match="float32"):
            torch_dtype(name)
    with pytest.raises(InvalidInputError):
        KVPool([], 4)
