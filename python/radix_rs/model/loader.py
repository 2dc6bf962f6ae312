"""Load a Hugging Face model so that it runs on our attention."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from radix_rs.attention import AttentionLayer
from radix_rs.errors import InvalidInputError
from radix_rs.memory import torch_dtype
from radix_rs.model import interface
from radix_rs.model.errors import ModelLoadError
from radix_rs.model.probe import probe_layers
from radix_rs.model.source import ModelSource, find_source
from radix_rs.model.support import check_config, max_positions

# What transformers reads GGUF files with.
_GGUF_NEEDS = ("gguf", "accelerate")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to run.

    Attributes
    ----------
    module
        The transformers model, unmodified.
    tokenizer
        Its transformers tokenizer, or None if there is none beside the weights.
    layers
        Its attention layers in the order of their index.
    layer_order
        Index of each layer in the model to its index in ``layers``.
    max_positions
        The longest text in tokens, or None.
    eos_token_ids
        Tokens that end a text.
    dtype, device
        What it computes in, and where.
    """

    module: Any
    tokenizer: Any | None
    layers: tuple[AttentionLayer, ...]
    layer_order: dict[int, int]
    max_positions: int | None
    eos_token_ids: frozenset[int]
    dtype: torch.dtype
    device: torch.device

    @property
    def vocab_size(self) -> int:
        """Token ids are below this."""
        return int(self.module.get_input_embeddings().num_embeddings)


def load_model(
    model: str | Path | None = None,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
) -> LoadedModel:
    """Load a model and its tokenizer.

    Parameters
    ----------
    model
        See :func:`radix_rs.model.source.find_source`.
    dtype
        What to compute in. ``"auto"`` is what the weights are stored in, except that a CPU
        computes float16 weights in float32.
    device
        ``"auto"`` is the GPU if there is one.

    Raises
    ------
    ModelLoadError
        If it cannot be found or read, or weights are missing.
    UnsupportedModelError
        If it cannot be served.
    InvalidInputError
        If there is no such dtype or device.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    source = find_source(model)
    if source.gguf_file is not None:
        missing = [name for name in _GGUF_NEEDS if importlib.util.find_spec(name) is None]
        if missing:
            raise ModelLoadError(
                f"reading a GGUF file needs more packages: pip install {' '.join(missing)}"
            )
    place = _device(device)
    config = _read(source, "the configuration", AutoConfig.from_pretrained)
    check_config(config)
    interface.register()
    module, loading = _read(
        source,
        "the weights",
        AutoModelForCausalLM.from_pretrained,
        dtype=_dtype(dtype, config, place),
        attn_implementation=interface.NAME,
        output_loading_info=True,
    )
    _check_complete(source, loading["missing_keys"])
    module = module.eval().requires_grad_(False).to(place)
    tokenizer = _load_tokenizer(source)
    layers = probe_layers(module)
    return LoadedModel(
        module=module,
        tokenizer=tokenizer,
        layers=tuple(layers.values()),
        layer_order={index: order for order, index in enumerate(layers)},
        max_positions=max_positions(module.config),
        eos_token_ids=_eos_token_ids(module, tokenizer),
        dtype=module.dtype,
        device=place,
    )


def _read(source: ModelSource, what: str, read: Any, **arguments: Any) -> Any:
    """Call a ``from_pretrained`` and say what could not be read, and why."""
    from transformers.utils import logging

    shows_progress = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return read(source.name, **source.arguments, **arguments)
    except Exception as error:
        # Whatever a broken file does to the parsers below us, to a caller it is one thing.
        place = source.gguf_file or source.name
        reason = str(error).strip().split("\n")[0]
        raise ModelLoadError(f"cannot read {what} of {place}: {reason}") from error
    finally:
        if shows_progress:
            logging.enable_progress_bar()


def _check_complete(source: ModelSource, missing: Iterable[str]) -> None:
    """Refuse weights that transformers would make up: what it calls missing is not tied either."""
    names = sorted(missing)
    if names:
        place = source.gguf_file or source.name
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise ModelLoadError(
            f"cannot read the weights of {place}: it lacks {', '.join(names[:3])}{more}; "
            "is this the right configuration for them?"
        )


def _device(device: str | torch.device) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidInputError(f"{device!r} is not a device: {error}") from error
    if place.type == "meta":
        raise InvalidInputError("nothing can be computed on the device 'meta'")
    try:  # torch says only when it is used that a device is not there, and in many ways
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InvalidInputError(f"there is no device {str(place)!r} here") from error
    return place


def _dtype(dtype: str | torch.dtype, config: Any, device: torch.device) -> torch.dtype:
    if dtype != "auto":
        return torch_dtype(dtype)
    stored = getattr(config, "dtype", None) or torch.float32
    if isinstance(stored, str):
        stored = torch_dtype(stored)
    return torch.float32 if stored == torch.float16 and device.type == "cpu" else stored


def _load_tokenizer(source: ModelSource) -> Any | None:
    from transformers import AutoTokenizer

    if source.has_tokenizer is False:
        return None
    return _read(source, "the tokenizer", AutoTokenizer.from_pretrained)


def _eos_token_ids(module: Any, tokenizer: Any | None) -> frozenset[int]:
    found: set[int] = set()
    generation = getattr(module, "generation_config", None)
    for ids in (
        getattr(generation, "eos_token_id", None),
        module.config.get_text_config(decoder=True).eos_token_id,
        tokenizer.eos_token_id if tokenizer is not None else None,
    ):
        found.update(ids if isinstance(ids, list | tuple) else () if ids is None else (ids,))
    return frozenset(int(token) for token in found)
