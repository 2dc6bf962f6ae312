"""Where models come from, and which are refused and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from radix_rs import LLM, SamplingParams
from radix_rs.errors import InvalidInputError
from radix_rs.model import ModelLoadError, UnsupportedModelError, load_model
from radix_rs.model.source import EMBEDDED, find_source
from transformers import AutoModelForCausalLM, LlamaConfig

GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
TINY: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def write_config(path: Path, **config: Any) -> Path:
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_the_embedded_model_is_the_default() -> None:
    model = load_model()
    assert model.dtype in (torch.float32, torch.bfloat16)
    assert model.tokenizer is not None
    assert model.tokenizer.chat_template
    assert model.eos_token_ids
    assert model.layer_order == {index: index for index in range(len(model.layers))}
    assert sum(file.stat().st_size for file in EMBEDDED.iterdir()) <= 3_000_000


def test_a_directory_without_a_tokenizer_takes_token_ids(tmp_path: Path) -> None:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(LlamaConfig(**TINY)).save_pretrained(tmp_path)
    with LLM(str(tmp_path), num_slots=64) as llm:
        (output,) = llm.generate([1, 2, 3], GREEDY, progress=False)
        assert len(output.token_ids) == 4
        assert output.text == ""
        with pytest.raises(InvalidInputError, match="tokenizer"):
            llm.generate("text", progress=False)
        with pytest.raises(InvalidInputError, match="tokenizer"):
            llm.generate([1, 2], SamplingParams(stop="x"), progress=False)


def test_float16_weights_are_computed_in_float32_on_a_cpu(tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(LlamaConfig(**TINY)).half().save_pretrained(tmp_path)
    assert load_model(tmp_path, device="cpu").dtype == torch.float32
    assert load_model(tmp_path, device="cpu", dtype="float16").dtype == torch.float16


def test_a_gguf_file_is_read(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(LlamaConfig(**TINY), dtype=torch.float32)
    file = tmp_path / "tiny.gguf"
    write_gguf(gguf, model, file)
    with LLM(file, num_slots=64, dtype="float32") as llm:
        prompt = [5, 6, 7, 8, 9]
        (output,) = llm.generate(prompt, GREEDY, progress=False)
        expected = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, 5, dtype=torch.int64),
            max_new_tokens=4,
            do_sample=False,
        )
        assert list(output.token_ids) == expected[0, 5:].tolist()
        (output,) = llm.generate("5678", GREEDY, progress=False)
        assert output.text


def write_gguf(gguf: Any, model: Any, file: Path) -> None:
    """Write a tiny Llama the way llama.cpp does: its names, and rotary pairs side by side."""
    config = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    letters = [chr(ord("0") + number) for number in range(config.vocab_size - 1)]
    writer.add_token_list([*letters, "56"])
    writer.add_token_types([1] * config.vocab_size)
    writer.add_token_merges(["5 6"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)

    def paired(weight: torch.Tensor, heads: int) -> torch.Tensor:
        rows, columns = weight.shape
        split = weight.reshape(heads, 2, rows // heads // 2, columns)
        return split.transpose(1, 2).reshape(rows, columns)

    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for name, weight in model.state_dict().items():
        target = names.get(name)
        if target is None:
            _, _, layer, part = name.removesuffix(".weight").split(".", 3)
            target = f"blk.{layer}.{parts[part]}.weight"
        if "q_proj" in name:
            weight = paired(weight, config.num_attention_heads)
        elif "k_proj" in name:
            weight = paired(weight, config.num_key_value_heads)
        writer.add_tensor(target, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_missing_gguf_reader_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match="pip install gguf"):
        load_model(tmp_path / "model.gguf")


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./nothing", "nothing.gguf", "a/b/c", ""])
def test_what_is_nowhere_is_said_to_be(name: str) -> None:
    with pytest.raises(ModelLoadError):
        find_source(name)


def test_a_directory_without_a_model_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        load_model(tmp_path)
    write_config(tmp_path, model_type="no-such-architecture")
    with pytest.raises(ModelLoadError, match="configuration"):
        load_model(tmp_path)


def test_broken_weights_are_said_to_be(tmp_path: Path) -> None:
    write_config(tmp_path, model_type="llama", **TINY)
    with pytest.raises(ModelLoadError, match="weights"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{broken")
    with pytest.raises(ModelLoadError, match="weights"):
        load_model(tmp_path)


def test_missing_weights_are_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    AutoModelForCausalLM.from_config(LlamaConfig(**TINY)).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = {name: w for name, w in load_file(file).items() if "layers.1.mlp" not in name}
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"lacks model\.layers\.1\.mlp\.down_proj\.weight"):
        load_model(tmp_path)


def test_weights_of_another_architecture_are_said_not_to_fit(tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(LlamaConfig(**TINY)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    write_config(tmp_path, **{**config, "model_type": "qwen3", "architectures": None})
    with pytest.raises(ModelLoadError, match=r"lacks .*norm.* more; is this the right"):
        load_model(tmp_path)


def test_tied_weights_are_not_missing(tmp_path: Path) -> None:
    config = LlamaConfig(**TINY, tie_word_embeddings=True)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    assert load_model(tmp_path).vocab_size == 64


def test_a_name_is_taken_for_one_on_the_hub() -> None:
    source = find_source("owner/name")
    assert source.name == "owner/name"
    assert source.has_tokenizer is None


REFUSED = {
    "t5": ("encoder-decoder", {}),
    "deepseek_v3": ("MLA", {}),
    "mamba": ("linear_attention", {}),
    "jamba": ("linear_attention", {}),
    "bloom": ("attention interface", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "llama": (
        "rotary",
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}},
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_has_no_room_in_a_slot_pool_is_refused(kind: str, tmp_path: Path) -> None:
    reason, extra = REFUSED[kind]
    config = transformers.AutoConfig.for_model(kind, **{**tiny_for(kind), **extra})
    config.save_pretrained(tmp_path)
    if kind in ("mamba", "bloom"):
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=reason) as error:
        load_model(tmp_path)
    assert kind in str(error.value)


def tiny_for(kind: str) -> dict[str, Any]:
    if kind == "mamba":
        return {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}
    if kind == "bloom":
        return {"vocab_size": 64}
    return {} if kind == "t5" else {"num_hidden_layers": 2, "vocab_size": 64}


def test_attention_sinks_are_refused(tmp_path: Path) -> None:
    config = transformers.GptOssConfig(
        **TINY, num_local_experts=2, num_experts_per_tok=1, sliding_window=16
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match="sinks"):
        load_model(tmp_path)


def test_layers_are_known_with_their_windows_and_caps(tmp_path: Path) -> None:
    config = transformers.Gemma2Config(
        **TINY, sliding_window=16, attn_logit_softcapping=30.0, query_pre_attn_scalar=64
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    first, second = load_model(tmp_path).layers
    assert (first.window, second.window) == (16, None)
    assert first.soft_cap == second.soft_cap == 30.0
    assert first.scale == pytest.approx(0.125)
    assert (first.num_heads, first.num_kv_heads, first.head_dim) == (4, 2, 8)


@pytest.mark.parametrize(
    "config",
    [
        transformers.Gemma2Config(**TINY, sliding_window=8, query_pre_attn_scalar=8),
        transformers.MistralConfig(**TINY, sliding_window=8),
        transformers.Qwen2Config(**{k: v for k, v in TINY.items() if k != "head_dim"}),
        transformers.Phi3Config(**{**TINY, "num_key_value_heads": 4}),
        transformers.GPTNeoXConfig(
            vocab_size=64,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=128,
            eos_token_id=None,
        ),
    ],
    ids=lambda config: config.model_type,
)
def test_further_architectures_give_the_tokens_of_transformers(config: Any, tmp_path: Path) -> None:
    torch.manual_seed(1)
    config.initializer_range = 0.3
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.save_pretrained(tmp_path)
    peer = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    )
    prompts = [[(7 * i + 3) % 61 + 1 for i in range(length)] for length in (20, 33, 5)]
    with LLM(tmp_path, num_slots=256, dtype="float32") as llm:
        for _ in range(2):  # the second time from the cache
            outputs = llm.generate(prompts, GREEDY, progress=False)
            for prompt, output in zip(prompts, outputs, strict=True):
                tokens = torch.tensor([prompt])
                expected = peer.generate(
                    tokens,
                    attention_mask=torch.ones_like(tokens),
                    max_new_tokens=4,
                    do_sample=False,
                    pad_token_id=0,
                )
                assert list(output.token_ids) == expected[0, len(prompt) :].tolist()


def test_an_import_of_the_package_brings_no_torch() -> None:
    import subprocess

    code = "import radix_rs, sys; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
