"""Trains the embedded model: tokenizer, Llama-architecture causal model and model card.

Needs ``torch``, ``transformers``, ``tokenizers``, ``safetensors``, ``pyyaml``, and for the text
``pip install chitchat-dataset chatterbot-corpus``. Seeds are fixed; with ``--steps`` (rather than
``--minutes``) a run is repeatable on one machine. Files in ``--out`` are replaced one by one, each
by a rename, so the folder can be loaded while a run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from pathlib import Path

import embedded_text as source
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

EOS, PAD = "<|eos|>", "<|pad|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] | trim + '<|eos|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
LENGTHS = (128, 256, 512, 1024, 2048)
WEIGHTS = (2, 3, 4, 3, 1)
MAX_POSITIONS = 8192
SIZE_LIMIT = 3_000_000
Split = dict[str, list[source.Dialogue]]


def read_text(args: argparse.Namespace) -> tuple[Split, Split]:
    """Returns the dialogues of every source, as a training and a held-out part."""
    rng = random.Random(args.seed)
    sources = {
        "chitchat": list(source.chitchat(rng)),
        "chatterbot": list(source.chatterbot(rng)),
        "templates": list(source.templates(rng, args.templates)),
        "extra": list(source.extra_jsonl(args.extra_jsonl)),
    }
    for name in ("chitchat", "chatterbot"):
        if not sources[name]:
            print(f"skipped {name}: `pip install chitchat-dataset chatterbot-corpus` to have it")
    train: Split = {}
    held: Split = {}
    for name, dialogues in sources.items():
        if dialogues:
            rng.shuffle(dialogues)
            count = max(1, len(dialogues) // 50)
            held[name], train[name] = dialogues[:count], dialogues[count:]
    return train, held


def render(dialogue: source.Dialogue) -> str:
    """Returns ``dialogue`` in the chat format (a message of role ``text`` stands bare)."""
    heads = {"text": ""}
    return "".join(
        heads.get(m["role"], f"<|{m['role']}|>") + m["content"].strip() + EOS for m in dialogue
    )


def make_tokenizer(train: Split, vocab_size: int) -> PreTrainedTokenizerFast:
    """Returns a byte-level BPE tokenizer trained on ``train``; it can encode any bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS, PAD, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [m["content"] for dialogues in train.values() for d in dialogues for m in d]
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        extra_special_tokens=list(ROLES),
        chat_template=TEMPLATE,
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Returns the untrained model."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=160,
        intermediate_size=320,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config.do_sample = False
    return model


class Packed:
    """All tokens of a split in one row; each pass has the dialogues in a new order.

    ``bytes`` counts the messages alone, not the role and end tokens.
    """

    def __init__(self, split: Split, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
        texts = [render(d) for dialogues in split.values() for d in dialogues]
        self.bytes = sum(
            len(m["content"].encode()) for dialogues in split.values() for d in dialogues for m in d
        )
        encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        self.parts = [torch.tensor(ids) for ids in encoded]
        self.rng = random.Random(seed)
        self.row = torch.cat(self.parts)
        self.position = len(self.row)

    def batch(self, length: int, tokens: int) -> torch.Tensor:
        """Returns the next ``tokens`` tokens as rows of ``length``."""
        if self.position + tokens > len(self.row):
            self.rng.shuffle(self.parts)
            self.row, self.position = torch.cat(self.parts), 0
        rows = self.row[self.position : self.position + tokens]
        self.position += tokens
        return rows.view(-1, length)


def positions(length: int, rng: random.Random) -> torch.Tensor:
    """Returns positions for a batch; one in four has a gap, to show the model far distances."""
    where = torch.arange(length)
    if rng.random() < 0.25:
        where[rng.randrange(1, length) :] += rng.randrange(MAX_POSITIONS - length)
    return where.unsqueeze(0)


def loss_of(
    model: LlamaForCausalLM, rows: torch.Tensor, where: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns the mean loss of ``rows`` in nats per token."""
    hidden = model.model(rows, position_ids=where, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def evaluate(model: LlamaForCausalLM, data: Packed, length: int = 512) -> tuple[float, float]:
    """Returns nats per token, and bits per byte of the messages, in rows of ``length``."""
    model.eval()
    row = torch.cat(data.parts)
    rows = row[: len(row) // length * length].view(-1, length) if len(row) >= length else row[None]
    losses = [loss_of(model, part) * len(part) for part in rows.split(8)]
    model.train()
    nats = float(sum(losses)) / len(rows)
    return nats, nats / math.log(2) * sum(map(len, data.parts)) / data.bytes


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path, card: str) -> None:
    """Writes all files of the model into ``out``, the weights as bfloat16."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as name:
        folder = Path(name)
        copy = LlamaForCausalLM(model.config).to(torch.bfloat16)
        copy.load_state_dict(model.state_dict())
        copy.generation_config = model.generation_config
        copy.save_pretrained(folder)
        tokenizer.save_pretrained(folder, save_jinja_files=False)
        (folder / "README.md").write_text(card, encoding="utf-8")
        size = sum(path.stat().st_size for path in folder.iterdir())
        if size > SIZE_LIMIT:
            sys.exit(f"the model takes {size} bytes, more than {SIZE_LIMIT}")
        for path in sorted(folder.iterdir()):
            path.chmod(0o644)
            path.replace(out / path.name)


def card_of(numbers: dict, model: LlamaForCausalLM, args: argparse.Namespace) -> str:
    """Returns the model card."""
    c = model.config
    rows = "\n".join(
        f"| {name} | {nats:.3f} | {bits:.3f} |" for name, (nats, bits) in numbers["held"].items()
    )
    return (Path(__file__).parent / "embedded_card.md").read_text(encoding="utf-8").format(
        parameters=f"{model.num_parameters():,}", c=c, rows=rows, seed=args.seed,
        templates=args.templates, batch=args.batch_tokens, **numbers,
    )  # fmt: skip


def parse_args() -> argparse.Namespace:
    """Returns the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).resolve().parent.parent
    out = root / "python" / "radix_rs" / "model" / "embedded"
    parser.add_argument("--out", type=Path, default=out, help="folder of the model")
    parser.add_argument("--steps", type=int, default=2000, help="optimiser steps")
    parser.add_argument("--minutes", type=float, help="fit the schedule to this time instead")
    parser.add_argument("--save-minutes", type=float, default=5.0, help="time between saves")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="tokens per step")
    parser.add_argument("--vocab-size", type=int, default=1536)
    parser.add_argument("--templates", type=int, default=9_000, help="template dialogues")
    parser.add_argument("--extra-jsonl", type=Path, nargs="*", default=[], help="more text")
    parser.add_argument("--lr", type=float, default=0.02, help="peak rate of the matrices (Muon)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    """Trains, saves now and then, and writes the card with the reached losses."""
    args = parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    train, held = read_text(args)
    tokenizer = make_tokenizer(train, args.vocab_size)
    model = make_model(tokenizer)
    data = Packed(train, tokenizer, args.seed)
    tests = {name: Packed({name: part}, tokenizer, args.seed) for name, part in held.items()}
    print(f"{model.num_parameters()} parameters, {len(data.row)} tokens, {data.bytes} bytes")

    matrices = [p for n, p in model.model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim == 1 or "embed" in n]
    optimisers = [
        torch.optim.Muon(matrices, lr=args.lr, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, lr=args.lr / 4, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peaks = [args.lr, args.lr / 4]
    begin = saved = time.monotonic()
    step, done, average = 0, 0.0, 0.0
    while done < 1.0:
        scale = min(1.0, (step + 1) / 50, (1.0 - done) / 0.5 + 0.01)
        for optimiser, peak in zip(optimisers, peaks, strict=True):
            optimiser.param_groups[0]["lr"] = peak * scale
        length = rng.choices(LENGTHS, WEIGHTS)[0]
        loss = loss_of(model, data.batch(length, args.batch_tokens), positions(length, rng))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        step += 1
        average = loss.item() if step == 1 else 0.95 * average + 0.05 * loss.item()
        now = time.monotonic()
        done = (now - begin) / 60 / args.minutes if args.minutes else step / args.steps
        last = done >= 1.0
        if step % 50 == 0:
            spent = f"{now - begin:.0f}s"
            print(f"step {step} train {average:.3f} rate {scale:.2f} {spent}", flush=True)
        if last or now - saved > args.save_minutes * 60:
            saved = now
            scores = {name: evaluate(model, part) for name, part in tests.items()}
            numbers = {
                "steps": step, "train": average, "held": scores, "vocab": len(tokenizer),
                "tokens": step * args.batch_tokens, "text_tokens": len(data.row),
                "text_bytes": data.bytes,
            }  # fmt: skip
            print(json.dumps(numbers), flush=True)
            save(model, tokenizer, args.out, card_of(numbers, model, args))


if __name__ == "__main__":
    main()
