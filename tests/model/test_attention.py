"""The reference backend against attention in float64, one request and one head at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from radix_rs.attention import AttentionLayer, BatchMetadata, Span, make_backend
from radix_rs.errors import InvalidInputError
from radix_rs.memory import KVPool

# Relative norm of the error; what is stored in 8 bits of mantissa is compared at that precision.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}


@dataclass
class Case:
    """A ragged batch with all K and V of its requests."""

    layers: list[AttentionLayer]
    lengths: list[tuple[int, int]]  # (prefix, new tokens) of each request
    is_run: list[bool]  # whether a request's slots are consecutive
    seed: int
    dtype: torch.dtype
    kv_dtype: torch.dtype


def oracle(
    spec: AttentionLayer, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Attention of the last rows of one request: [q, heads, d] over [kv, kv_heads, d], float64."""
    num_new, num_all = query.shape[0], key.shape[0]
    out = torch.empty_like(query)
    position = torch.arange(num_all)
    for row in range(num_new):
        last = num_all - num_new + row
        first = 0 if spec.window is None else max(0, last - spec.window + 1)
        seen = (position >= first) & (position <= last)
        for head in range(spec.num_heads):
            kv_head = head // spec.group
            scores = key[seen, kv_head] @ query[row, head] * spec.scale
            if spec.soft_cap is not None:
                scores = spec.soft_cap * torch.tanh(scores / spec.soft_cap)
            out[row, head] = torch.softmax(scores, 0) @ value[seen, kv_head]
    return out


def check(case: Case) -> None:
    generator = torch.Generator().manual_seed(case.seed)
    total = sum(prefix + new for prefix, new in case.lengths)
    num_slots = 2 * total + 8
    pool = KVPool(
        [layer.shape for layer in case.layers], num_slots, dtype=case.kv_dtype, device="cpu"
    )
    backend = make_backend("reference", case.layers, pool, case.dtype)
    for tensor in (*pool.keys, *pool.values):
        tensor.fill_(math.nan)  # a slot that is read without having been written shows
    free = torch.randperm(num_slots, generator=generator)
    # Consecutive slots come from the lower half, scattered ones from the upper.
    scattered = free[free >= total].to(torch.int32).numpy()
    slots: list[np.ndarray] = []
    used = 0
    for (prefix, new), is_run in zip(case.lengths, case.is_run, strict=True):
        length = prefix + new
        own = np.arange(used, used + length) if is_run else scattered[used : used + length]
        slots.append(own.astype(np.int32))
        used += length
    spans = [
        Span(own, prefix, prefix + new, prefix + new if is_run else 0)
        for own, (prefix, new), is_run in zip(slots, case.lengths, case.is_run, strict=True)
    ]
    backend.plan(BatchMetadata.of(spans))
    for index, spec in enumerate(case.layers):
        shape = spec.shape
        queries, keys, values = [], [], []
        for own, (prefix, new) in zip(slots, case.lengths, strict=True):
            size = (prefix + new, shape.num_kv_heads, shape.head_dim)
            keys.append(torch.randn(size, generator=generator).to(case.dtype))
            values.append(torch.randn(size, generator=generator).to(case.dtype))
            query = torch.randn(new, spec.num_heads, spec.head_dim, generator=generator)
            queries.append(query.to(case.dtype))
            place = torch.from_numpy(own[:prefix]).long()
            pool.store(index, place, keys[-1][:prefix], values[-1][:prefix])

        def rows(parts: list[torch.Tensor]) -> torch.Tensor:
            return torch.cat(parts).transpose(0, 1)[None]

        new_keys = [one[prefix:] for one, (prefix, _) in zip(keys, case.lengths, strict=True)]
        new_values = [one[prefix:] for one, (prefix, _) in zip(values, case.lengths, strict=True)]
        out = backend.run(index, rows(queries), rows(new_keys), rows(new_values))
        assert out.shape == (1, len(torch.cat(queries)), spec.num_heads, spec.head_dim)
        assert out.dtype == case.dtype
        expected = torch.cat(
            [
                oracle(
                    spec,
                    query.double(),
                    key.to(case.kv_dtype).to(case.dtype).double(),
                    value.to(case.kv_dtype).to(case.dtype).double(),
                )
                for query, key, value in zip(queries, keys, values, strict=True)
            ]
        )
        error = (out[0].double() - expected).norm() / expected.norm()
        assert error < TOLERANCE[case.dtype], f"layer {index}: {spec}, error {error}"
        # The new K and V are in their slots afterwards.
        for own, key, value in zip(slots, keys, values, strict=True):
            place = torch.from_numpy(own).long()
            torch.testing.assert_close(pool.keys[index][place], key.to(case.kv_dtype))
            torch.testing.assert_close(pool.values[index][place], value.to(case.kv_dtype))


def layer_of(kv_heads: int, group: int, head_dim: int, window: int | None, cap: float | None):
    return AttentionLayer(
        num_heads=kv_heads * group,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        scale=head_dim**-0.5,
        window=window,
        soft_cap=cap,
    )


layers = st.builds(
    layer_of,
    st.integers(1, 3),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([8, 16]),
    st.sampled_from([None, None, 1, 5, 30]),
    st.sampled_from([None, None, None, 3.0]),
)
decode = st.tuples(st.integers(0, 60), st.just(1))
extend = st.tuples(st.integers(0, 40), st.integers(1, 20))
long_extend = st.tuples(st.integers(0, 90), st.integers(65, 100))
requests = st.one_of(
    st.lists(decode, min_size=1, max_size=7),
    st.lists(st.one_of(decode, extend), min_size=1, max_size=6),
    st.lists(st.one_of(decode, extend, long_extend), min_size=1, max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), lengths=requests, specs=st.lists(layers, min_size=1, max_size=2))
def test_any_batch_gives_the_attention_of_its_requests(
    data: st.DataObject, lengths: list[tuple[int, int]], specs: list[AttentionLayer]
) -> None:
    is_run = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16]))
    kv_dtype = data.draw(st.sampled_from([dtype, dtype, torch.bfloat16]))
    check(Case(specs, lengths, is_run, data.draw(st.integers(0, 2**31)), dtype, kv_dtype))


@pytest.mark.parametrize("window", [None, 100, 700])
@pytest.mark.parametrize("cap", [None, 5.0])
@pytest.mark.parametrize("prefix", [0, 300])
def test_extends_of_several_blocks(window: int | None, cap: float | None, prefix: int) -> None:
    spec = layer_of(1, 2, 8, window, cap)
    check(Case([spec], [(prefix, 530), (20, 1)], [True, False], 1, torch.float32, torch.float32))


def test_decodes_of_very_different_lengths() -> None:
    lengths = [(3, 1), (1500, 1), (4, 1), (1200, 1), (0, 1)]
    runs = [False, True, False, False, True]
    check(Case([layer_of(2, 2, 16, None, None)], lengths, runs, 2, torch.float32, torch.float32))


def test_half_precision_on_the_long_path() -> None:
    spec = layer_of(2, 2, 16, None, None)
    for dtype in (torch.bfloat16, torch.float16):
        check(Case([spec], [(70, 90), (0, 80)], [True, False], 3, dtype, dtype))


def test_layers_may_differ_in_heads_and_window() -> None:
    specs = [layer_of(1, 4, 16, 7, None), layer_of(3, 1, 8, None, None), layer_of(2, 2, 8, 3, 2.0)]
    check(Case(specs, [(30, 1), (12, 9)], [False, True], 4, torch.float32, torch.float32))


def test_large_scores_stay_finite() -> None:
    spec = layer_of(1, 1, 8, None, None)
    pool = KVPool([spec.shape], 8)
    backend = make_backend("auto", [spec], pool, torch.float32)
    backend.plan(BatchMetadata.of([Span(np.arange(4, dtype=np.int32), 0, 4)]))
    big = torch.full((1, 1, 4, 8), 1e4)
    assert torch.isfinite(backend.run(0, big, big, torch.ones(1, 1, 4, 8))).all()


def test_an_unknown_backend_is_refused() -> None:
    spec = layer_of(1, 1, 8, None, None)
    with pytest.raises(InvalidInputError, match="reference"):
        make_backend("flashy", [spec], KVPool([spec.shape], 8), torch.float32)


def test_metadata_states_the_layout() -> None:
    batch = BatchMetadata.of(
        [
            Span(np.array([9, 8, 7], np.int32), 2, 3),
            Span(np.array([1, 2, 3, 4, 5], np.int32), 1, 4, run_length=5),
        ]
    )
    assert batch.num_requests == 2
    assert batch.num_tokens == 4
    assert batch.qo_indptr.tolist() == [0, 1, 4]
    assert batch.kv_indptr.tolist() == [0, 3, 7]
    assert batch.kv_indices.tolist() == [9, 8, 7, 1, 2, 3, 4]
    assert batch.new_slots.tolist() == [7, 2, 3, 4]
    assert batch.positions.tolist() == [2, 1, 2, 3]
    assert batch.run(0, 0, 3) is None
    assert batch.run(1, 1, 4) == 2
