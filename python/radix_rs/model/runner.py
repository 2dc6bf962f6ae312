"""Run one ragged step through a model."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from radix_rs.attention import AttentionBackend, BatchMetadata, Span
from radix_rs.model.interface import KEYWORD
from radix_rs.model.loader import LoadedModel


class ModelRunner:
    """Runs steps of a model on an attention backend.

    Parameters
    ----------
    model
        The model.
    backend
        Made for the same layers.
    """

    def __init__(self, model: LoadedModel, backend: AttentionBackend) -> None:
        self._model = model
        self._backend = backend
        self._layer_order = model.layer_order
        # Most models compute logits only where they are asked to.
        self._keeps = "logits_to_keep" in inspect.signature(model.module.forward).parameters

    def forward(
        self, tokens: NDArray[np.int64], spans: Sequence[Span], wanted: Sequence[int]
    ) -> Tensor | None:
        """Compute K and V of spans, and logits after the last token of some of them.

        Parameters
        ----------
        tokens
            int64 ``[num_tokens]``: the tokens of all spans, one after the other.
        spans
            What to compute.
        wanted
            Indices of the spans whose next token is to be chosen.

        Returns
        -------
        Tensor or None
            ``[len(wanted), vocab_size]``, or None if nothing is wanted.
        """
        batch = BatchMetadata.of(spans)
        assert len(tokens) == batch.num_tokens, "tokens and spans belong together"
        self._backend.plan(batch)
        device = self._model.device
        ids, positions = torch.from_numpy(tokens)[None], torch.from_numpy(batch.positions)[None]
        if device.type != "cpu":
            ids, positions = ids.to(device), positions.to(device)
        keep: dict[str, Any] = {}
        rows = None
        if len(wanted) < batch.num_tokens:
            rows = torch.from_numpy(batch.qo_indptr[1:][list(wanted)].astype(np.int64) - 1)
            rows = rows.to(device)
            if self._keeps:
                # Nothing wanted needs a row, too: no model promises to take an empty selection.
                keep["logits_to_keep"] = rows if wanted else 1
        with torch.inference_mode():
            output = self._model.module(
                input_ids=ids,
                position_ids=positions,
                use_cache=False,
                **keep,
                **{KEYWORD: self},
            )
        if not wanted:
            return None
        logits: Tensor = output.logits[0]
        return logits if self._keeps or rows is None else logits[rows]

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, kwargs: dict[str, Any]
    ) -> Tensor:
        """Answer one attention call of the model (see :class:`radix_rs.model.interface.Step`)."""
        layer = self._layer_order[module.layer_idx]  # type: ignore[index]
        return self._backend.run(layer, query, key, value)
