"""Find out what attention a loaded model has, by asking it once."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from radix_rs.attention import AttentionLayer
from radix_rs.model.errors import UnsupportedModelError
from radix_rs.model.interface import KEYWORD

# Keywords of attention calls that change the result and that no backend of ours knows.
_FOREIGN = {
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "position_bias": "a position bias",
    "indices": "sparse attention",
    "block_indices": "sparse attention",
}


class Probe:
    """A step that computes nothing and writes down what every layer asks for."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.layers: dict[int, AttentionLayer] = {}

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, kwargs: dict[str, Any]
    ) -> Tensor:
        """Record the layer and return zeros."""
        index = getattr(module, "layer_idx", None)
        if not isinstance(index, int) or index in self.layers:
            raise self._refusal("calls its attention layers in a way that gives them no place each")
        if kwargs.get("is_causal", getattr(module, "is_causal", True)) is False:
            raise self._refusal("has attention that is not causal")
        for name, what in _FOREIGN.items():
            if kwargs.get(name) is not None:
                raise self._refusal(f"needs {what}, which no attention backend has")
        if key.shape != value.shape:
            raise self._refusal(
                f"has K and V of different shapes, {key.shape[1:]} and {value.shape[1:]}"
            )
        if query.shape[1] % key.shape[1]:
            raise self._refusal(
                f"has {query.shape[1]} query heads for {key.shape[1]} K and V heads"
            )
        scale = kwargs.get("scaling")
        self.layers[index] = AttentionLayer(
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            head_dim=key.shape[3],
            scale=key.shape[3] ** -0.5 if scale is None else float(scale),
            window=kwargs.get("sliding_window"),
            soft_cap=kwargs.get("softcap"),
        )
        return torch.zeros_like(query).transpose(1, 2)

    def _refusal(self, why: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"{self._kind} {why}")


def probe_layers(model: Any) -> dict[int, AttentionLayer]:
    """Run two tokens through a model and return its attention layers by their index.

    Parameters
    ----------
    model
        A transformers causal model that was loaded with our attention.

    Raises
    ------
    UnsupportedModelError
        If a layer does not call our attention, or asks for what no backend has.
    """
    config = model.config.get_text_config(decoder=True)
    kind = model.config.model_type
    accepts = inspect.signature(model.forward).parameters
    if not model._supports_attention_backend or "position_ids" not in accepts:
        raise UnsupportedModelError(
            f"{kind} does not use transformers' attention interface, so its attention cannot be "
            "replaced by one over slots"
        )
    probe = Probe(kind)
    tokens = torch.zeros((1, 2), dtype=torch.int64, device=model.device)
    positions = torch.arange(2, device=model.device)[None]
    with torch.inference_mode():
        model(input_ids=tokens, position_ids=positions, use_cache=False, **{KEYWORD: probe})
    if len(probe.layers) != config.num_hidden_layers:
        raise UnsupportedModelError(
            f"{kind} has {config.num_hidden_layers} layers, but {len(probe.layers)} of them have "
            "standard attention; recurrent state cannot be shared by prefix"
        )
    layer_types = getattr(config, "layer_types", None) or ()
    for index, layer_type in enumerate(layer_types):
        if layer_type == "sliding_attention" and probe.layers[index].window is None:
            raise UnsupportedModelError(f"{kind} does not tell its attention the sliding window")
    return dict(sorted(probe.layers.items()))
