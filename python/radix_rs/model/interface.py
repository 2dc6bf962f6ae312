"""The hook through which Hugging Face models call our attention."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface

NAME = "radix_rs"
# The keyword that carries the step through the model's forward down to its attention.
KEYWORD = "radix_step"


class Step(Protocol):
    """What the hook hands every attention call of a forward to."""

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, kwargs: dict[str, Any]
    ) -> Tensor:
        """Return ``[1, num_tokens, num_heads, head_dim]`` for one layer.

        ``query`` is ``[1, num_heads, num_tokens, head_dim]``, ``key`` and ``value`` have
        ``num_kv_heads`` heads; ``kwargs`` is what else the model passes (scaling, window, ...).
        """
        ...


def register() -> None:
    """Make the hook known to transformers under ``NAME``.

    No mask function is registered beside it: transformers then builds no mask at all, which for
    a flattened batch would be a square of all its tokens.
    """
    AttentionInterface.register(NAME, _attention)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    step: Step = kwargs.pop(KEYWORD)
    return step.attend(module, query, key, value, kwargs), None
