"""`store_kv` against plain indexing."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from radix_rs.errors import InvalidInputError  # noqa: E402
from radix_rs.kernels.attention import store_kv  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _pools(num_slots, num_heads, head_dim, dtype=torch.float32):
    shape = (num_slots, num_heads, head_dim)
    return torch.full(shape, torch.nan, dtype=dtype, device=DEVICE), torch.full(
        shape, torch.nan, dtype=dtype, device=DEVICE
    )


def _new(num_tokens, num_heads, head_dim, dtype=torch.float32):
    generator = torch.Generator().manual_seed(num_tokens)
    shape = (num_tokens, num_heads, head_dim)
    return tuple(torch.randn(shape, generator=generator).to(dtype).to(DEVICE) for _ in range(2))


def _slots(values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("num_heads", "head_dim"), [(1, 16), (2, 64), (3, 80), (8, 192)])
@pytest.mark.parametrize("num_tokens", [1, 7])
def test_writes_each_row_to_its_slot_and_nothing_else(num_tokens, num_heads, head_dim, dtype):
    k, v = _new(num_tokens, num_heads, head_dim, dtype)
    k_pool, v_pool = _pools(16, num_heads, head_dim, dtype)
    slots = torch.randperm(16, generator=torch.Generator().manual_seed(1))[:num_tokens]
    store_kv(k, v, k_pool, v_pool, slots.to(torch.int32).to(DEVICE))
    assert torch.equal(k_pool[slots], k)
    assert torch.equal(v_pool[slots], v)
    rest = torch.ones(16, dtype=torch.bool)
    rest[slots] = False
    assert k_pool[rest].isnan().all()
    assert v_pool[rest].isnan().all()


def test_many_tokens_use_the_blocked_launch():
    k, v = _new(300, 1, 16)
    k_pool, v_pool = _pools(512, 1, 16)
    slots = torch.randperm(512, generator=torch.Generator().manual_seed(2))[:300]
    store_kv(k, v, k_pool, v_pool, slots.to(torch.int32).to(DEVICE))
    assert torch.equal(k_pool[slots], k)
    assert torch.equal(v_pool[slots], v)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_casts_to_the_dtype_of_the_pool(dtype):
    k, v = _new(3, 2, 16)
    k_pool, v_pool = _pools(4, 2, 16, dtype)
    store_kv(k, v, k_pool, v_pool, _slots([2, 0, 3]))
    # The interpreter truncates where a device rounds: one unit in the last place.
    tolerance = torch.finfo(dtype).eps if DEVICE == "cpu" else 0.0
    for pool, new in ((k_pool, k), (v_pool, v)):
        torch.testing.assert_close(pool[[2, 0, 3]], new.to(dtype), rtol=tolerance, atol=0.0)


def test_slices_of_a_fused_projection_need_no_copy():
    fused = torch.randn(5, 4 + 2 + 2, 32, device=DEVICE)
    _, k, v = fused.split([4, 2, 2], dim=1)
    k_pool, v_pool = _pools(8, 2, 32)
    store_kv(k, v, k_pool, v_pool, _slots([7, 1, 5, 2, 0]))
    assert torch.equal(k_pool[[7, 1, 5, 2, 0]], k)
    assert torch.equal(v_pool[[7, 1, 5, 2, 0]], v)


def test_the_trash_slot_is_not_written():
    k, v = _new(4, 1, 16)
    k_pool, v_pool = _pools(8, 1, 16)
    store_kv(k, v, k_pool, v_pool, _slots([3, 0, 0, 5]), trash_slot=0)
    assert torch.equal(k_pool[[3, 5]], k[[0, 3]])
    assert k_pool[0].isnan().all()
    assert v_pool[0].isnan().all()


@pytest.mark.parametrize("slot", [-1, 8, 2**31 - 1, -(2**31)])
def test_slots_outside_the_pool_are_not_written(slot):
    k, v = _new(2, 1, 16)
    guarded_k, guarded_v = _pools(10, 1, 16)
    store_kv(k, v, guarded_k[1:9], guarded_v[1:9], _slots([slot, 4]))
    assert torch.equal(guarded_k[5], k[1])
    rest = [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert guarded_k[rest].isnan().all()
    assert guarded_v[rest].isnan().all()


def test_no_tokens_is_no_launch():
    k, v = _new(0, 2, 16)
    store_kv(k, v, *_pools(2, 2, 16), _slots([]))


@pytest.mark.skipif(DEVICE == "cuda", reason="on the host untouched pages of the pool cost nothing")
def test_addresses_are_64_bits_wide():
    # Two rows 2**30 elements apart: slot 3 times the stride is beyond 2**31.
    stride = 2**30
    memory = torch.empty(3 * stride + 64, dtype=torch.float16)
    pool = memory.as_strided((4, 2, 16), (stride, 16, 1))
    k, _ = _new(2, 2, 16, torch.float16)
    store_kv(k, k, pool, pool, _slots([3, 1]))
    assert torch.equal(pool[3], k[0])
    assert torch.equal(pool[1], k[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slots": torch.zeros(3, dtype=torch.int64)}, "slots must be int32"),
        ({"slots": torch.zeros(2, dtype=torch.int32)}, "slots must be int32"),
        ({"slots": torch.zeros(6, dtype=torch.int32)[::2]}, "contiguous"),
        ({"k": torch.zeros(3, 2, 8)}, "k and v must both be"),
        ({"k_pool": torch.zeros(4, 3, 16)}, "pools must both be"),
        ({"k": torch.zeros(3, 2, 16, dtype=torch.int32)}, "must be floating"),
        ({"k": torch.zeros(3, 16, 2).transpose(1, 2)}, "last dimension of k"),
    ],
)
def test_wrong_arguments_are_typed_errors(change, message):
    arguments = {
        "k": torch.zeros(3, 2, 16),
        "v": torch.zeros(3, 2, 16),
        "k_pool": torch.zeros(4, 2, 16),
        "v_pool": torch.zeros(4, 2, 16),
        "slots": torch.zeros(3, dtype=torch.int32),
    }
    with pytest.raises(InvalidInputError, match=message):
        store_kv(**{name: tensor.to(DEVICE) for name, tensor in (arguments | change).items()})
