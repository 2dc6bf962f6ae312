"""Write the keys and values of new tokens into their slots of the pool."""

import os

import torch
import triton
import triton.language as tl
from radix_rs.errors import InvalidInputError

# Elements of one token's row that a program moves at once: 1,024 16-bit elements are 16 bytes a
# thread at 128 threads, the widest store there is.
_MAX_BLOCK_ROW = 1024
# Tokens a program moves. Decode has few tokens, so each gets a program; a prefill has enough of
# them to fill the device four at a time.
_FEW_TOKENS = 256


@triton.jit
def _store_kv_kernel(
    k_ptr,
    v_ptr,
    k_pool_ptr,
    v_pool_ptr,
    slots_ptr,
    num_tokens,
    num_slots,
    trash_slot,
    k_stride_token,
    k_stride_head,
    v_stride_token,
    v_stride_head,
    k_pool_stride_slot,
    k_pool_stride_head,
    v_pool_stride_slot,
    v_pool_stride_head,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_ROW: tl.constexpr,
):
    tokens = tl.program_id(0) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    row = tl.program_id(1) * BLOCK_ROW + tl.arange(0, BLOCK_ROW)
    head = row // HEAD_DIM
    dim = row % HEAD_DIM

    known = tokens < num_tokens
    slots = tl.load(slots_ptr + tokens, mask=known, other=0)
    # A slot outside the pool is a fault of the caller; it must not become a write into memory
    # that belongs to someone else.
    wanted = known & (slots != trash_slot) & (slots >= 0) & (slots < num_slots)
    mask = wanted[:, None] & (row < NUM_HEADS * HEAD_DIM)[None, :]

    # Slot times stride passes 2**31 from 16 GiB pools on, and token times stride in long prefills:
    # both are 64 bits wide before they are multiplied.
    tokens = tokens.to(tl.int64)[:, None]
    slots = slots.to(tl.int64)[:, None]
    head = head.to(tl.int64)[None, :]
    dim = dim[None, :]

    k = tl.load(k_ptr + tokens * k_stride_token + head * k_stride_head + dim, mask=mask)
    v = tl.load(v_ptr + tokens * v_stride_token + head * v_stride_head + dim, mask=mask)
    k_to = k_pool_ptr + slots * k_pool_stride_slot + head * k_pool_stride_head + dim
    v_to = v_pool_ptr + slots * v_pool_stride_slot + head * v_pool_stride_head + dim
    tl.store(k_to, k.to(k_pool_ptr.dtype.element_ty), mask=mask)
    tl.store(v_to, v.to(v_pool_ptr.dtype.element_ty), mask=mask)


def store_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    slots: torch.Tensor,
    *,
    trash_slot: int | None = None,
) -> None:
    """Write ``k[i]`` and ``v[i]`` to row ``slots[i]`` of the pools, in place.

    Parameters
    ----------
    k, v
        Keys and values of the new tokens, ``[num_tokens, num_kv_heads, head_dim]``, any floating
        dtype (cast to the pool's). The last dimension must be contiguous; the others may be
        strided, so slices of one fused QKV projection need no copy.
    k_pool, v_pool
        ``[num_slots, num_kv_heads, head_dim]``, the last dimension contiguous.
    slots
        ``[num_tokens]`` int32, on the same device. Two tokens must not share a slot (which of
        them would win is not defined). Tokens whose slot lies outside the pool are not written.
    trash_slot
        Tokens with this slot are not written: padding of a captured batch. None: there is no such
        slot.

    Raises
    ------
    InvalidInputError
        Shapes, dtypes or devices do not fit together.
    """
    _check(k, v, k_pool, v_pool, slots)
    num_tokens, num_heads, head_dim = k.shape
    if num_tokens == 0:
        return
    block_tokens = 1 if num_tokens <= _FEW_TOKENS else 4
    block_row = min(triton.next_power_of_2(num_heads * head_dim), _MAX_BLOCK_ROW)
    grid = (triton.cdiv(num_tokens, block_tokens), triton.cdiv(num_heads * head_dim, block_row))
    _store_kv_kernel[grid](
        k,
        v,
        k_pool,
        v_pool,
        slots,
        num_tokens,
        k_pool.shape[0],
        # Slots are never negative, so this one is never met.
        -1 if trash_slot is None else trash_slot,
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        k_pool.stride(0),
        k_pool.stride(1),
        v_pool.stride(0),
        v_pool.stride(1),
        NUM_HEADS=num_heads,
        HEAD_DIM=head_dim,
        BLOCK_TOKENS=block_tokens,
        BLOCK_ROW=block_row,
        num_warps=4,
    )


def _check(
    k: torch.Tensor,
    v: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    if k.ndim != 3 or k.shape != v.shape:
        raise InvalidInputError(
            "k and v must both be [num_tokens, num_kv_heads, head_dim], "
            f"got {tuple(k.shape)} and {tuple(v.shape)}"
        )
    if k_pool.shape != v_pool.shape or k_pool.ndim != 3 or k_pool.shape[1:] != k.shape[1:]:
        raise InvalidInputError(
            f"the pools must both be [num_slots, {k.shape[1]}, {k.shape[2]}], "
            f"got {tuple(k_pool.shape)} and {tuple(v_pool.shape)}"
        )
    if slots.dtype != torch.int32 or slots.ndim != 1 or slots.shape[0] != k.shape[0]:
        raise InvalidInputError(
            f"slots must be int32 [{k.shape[0]}], got {slots.dtype} {tuple(slots.shape)}"
        )
    if not slots.is_contiguous():
        raise InvalidInputError("slots must be contiguous")
    for name, tensor in (("k", k), ("v", v), ("k_pool", k_pool), ("v_pool", v_pool)):
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise InvalidInputError(f"the last dimension of {name} must be contiguous")
        if not tensor.is_floating_point():
            raise InvalidInputError(f"{name} must be floating, got {tensor.dtype}")
    devices = {t.device for t in (k, v, k_pool, v_pool, slots)}
    if len(devices) != 1:
        raise InvalidInputError(
            f"all tensors must be on one device, got {sorted(map(str, devices))}"
        )
    if k.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise InvalidInputError(
            "Triton kernels need a GPU, or TRITON_INTERPRET=1 in the environment to be interpreted"
        )
