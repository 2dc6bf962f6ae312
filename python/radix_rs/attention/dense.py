"""Attention over K and V that lie in plain tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (its usual name)
from torch import Tensor

from radix_rs.attention.base import AttentionLayer


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, spec: AttentionLayer
) -> Tensor:
    """Return the attention of rows over K and V.

    Parameters
    ----------
    query
        ``[batch, heads, num_rows, head_dim]``.
    key, value
        ``[batch, heads, num_columns, head_dim]``.
    mask
        Added to the scores, broadcastable to ``[batch, heads, num_rows, num_columns]``; or None.
    spec
        Scale and soft cap of the layer.

    Returns
    -------
    Tensor
        Like ``query``.
    """
    if spec.soft_cap is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=spec.scale)
    scores = torch.matmul(query, key.transpose(2, 3)) * spec.scale
    scores = spec.soft_cap * torch.tanh(scores / spec.soft_cap)
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, value)


def attend_split(
    query: Tensor, old_key: Tensor, old_value: Tensor, key: Tensor, value: Tensor, scale: float
) -> Tensor:
    """Return the attention of new rows over a prefix, which all see, and over themselves, causally.

    Without a mask, which would hold a number for each row and each token of the prefix, it takes
    a quarter less time; and the two parts need not lie in one tensor.

    Parameters
    ----------
    query
        ``[batch, heads, num_rows, head_dim]``, on a CPU.
    old_key, old_value
        ``[batch, heads, num_cached, head_dim]``.
    key, value
        ``[batch, heads, num_rows, head_dim]``.
    scale
        Factor on the scores.

    Returns
    -------
    Tensor
        Like ``query``.
    """
    # The operator behind `scaled_dot_product_attention` on a CPU; it alone gives the logarithm
    # (to base e) of the sum of exponentials, [batch, heads, num_rows], by which parts are merged.
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    old, old_lse = flash(query, old_key, old_value, 0.0, False, scale=scale)
    new, new_lse = flash(query, key, value, 0.0, True, scale=scale)
    weight = torch.sigmoid(old_lse - new_lse)[..., None]
    return torch.lerp(new.to(weight.dtype), old.to(weight.dtype), weight).to(query.dtype)
