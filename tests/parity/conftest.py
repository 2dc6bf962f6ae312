"""Models to compare with: the embedded one, and random tiny ones of four architectures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from radix_rs.model.source import EMBEDDED
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    Qwen3Config,
)

# Small enough to run in milliseconds; weights large enough that the best two logits rarely meet.
_COMMON = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "initializer_range": 0.25,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(**_COMMON),
    "qwen3": lambda: Qwen3Config(**_COMMON),
    # The window is shorter than every prompt, so that it decides what is seen.
    "gemma3": lambda: Gemma3TextConfig(
        **_COMMON,
        sliding_window=12,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        query_pre_attn_scalar=16,
    ),
    "gpt2": lambda: GPT2Config(
        vocab_size=320,
        n_embd=64,
        n_layer=3,
        n_head=4,
        n_positions=1024,
        initializer_range=0.25,
        bos_token_id=None,
        eos_token_id=None,
    ),
}
MODELS = ["embedded", *CONFIGS]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    # On shared cores threads of tiny operations wait for each other for most of their time.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {"embedded": EMBEDDED}

    def path_of(name: str) -> Path:
        if name not in made:
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.float32)
            made[name] = tmp_path_factory.mktemp(name)
            model.save_pretrained(made[name])
        if name == "embedded" and not (EMBEDDED / "config.json").is_file():
            pytest.skip("the embedded model has not been trained yet")
        return made[name]

    return path_of


@pytest.fixture(scope="session")
def peer(model_path: Callable[[str], Path]) -> Callable[[str], torch.nn.Module]:
    """The unchanged model with transformers' own attention and cache."""
    loaded: dict[str, torch.nn.Module] = {}

    def load(name: str) -> torch.nn.Module:
        if name not in loaded:
            loaded[name] = AutoModelForCausalLM.from_pretrained(
                model_path(name), dtype=torch.float32
            ).eval()
        return loaded[name]

    return load
