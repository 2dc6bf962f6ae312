"""What cannot be served, told from the configuration before any weight is read."""

from __future__ import annotations

from typing import Any

from radix_rs.model.errors import UnsupportedModelError

_LAYER_TYPES = {"full_attention", "sliding_attention", "attention"}


def check_config(config: Any) -> None:
    """Refuse a model whose configuration says that a slot pool is not enough for it.

    Parameters
    ----------
    config
        A transformers configuration.

    Raises
    ------
    UnsupportedModelError
        Naming the reason.
    """
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{kind} is an encoder-decoder model; only decoders with causal attention are served"
        )
    text = config.get_text_config(decoder=True)
    if getattr(text, "kv_lora_rank", None):
        raise UnsupportedModelError(
            f"{kind} uses multi-head latent attention (MLA): its cache is one compressed vector "
            "per token, not K and V per head"
        )
    foreign = sorted(set(getattr(text, "layer_types", None) or ()) - _LAYER_TYPES)
    if foreign:
        raise UnsupportedModelError(
            f"{kind} has layers of kind {', '.join(foreign)}; only full and sliding-window "
            "attention are served (recurrent state cannot be shared by prefix)"
        )
    if rope_type(text) == "dynamic":
        raise UnsupportedModelError(
            f"{kind} rescales its rotary embedding with the length of the text, so the K of a "
            "prefix is not the same in a longer text and cannot be reused"
        )


def rope_type(text_config: Any) -> str | None:
    """Return the kind of rotary embedding, None if there is none or one per layer type."""
    parameters = getattr(text_config, "rope_parameters", None) or {}
    kind = parameters.get("rope_type")
    return kind if isinstance(kind, str) else None


def max_positions(config: Any) -> int | None:
    """Return the longest text in tokens that the model can take, None if there is no bound."""
    text = config.get_text_config(decoder=True)
    limit: int | None = getattr(text, "max_position_embeddings", None)
    if rope_type(text) == "longrope":
        # Beyond it the model turns to other factors, also for the tokens before.
        parameters = text.rope_parameters
        limit = parameters.get("original_max_position_embeddings", limit)
    return limit
