"""The speed floor: the engine against plain transformers, and reuse against its promise.

Decode at batch 1 and 16 and prefill of 1,000 tokens are measured against two peers that use
transformers' own cache on the same model with the same threads in the same process: a bare loop
of forwards with a `DynamicCache` (the strict peer: no loop is thinner) and `model.generate`.
Repeats are interleaved, so a disturbance hits all of them; a ratio is the median over repeats of
peer time / our time, so 1.0 is as fast and more is faster.

Then five requests share a system prompt of 4,096 tokens and have 256 own tokens each: the time to
all first tokens without and with the cache, beside what the computed tokens predict.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from radix_rs import LLM, SamplingParams
from radix_rs.model.source import EMBEDDED
from transformers import AutoModelForCausalLM, DynamicCache

PROMPT = 256
SHARED, OWN, REQUESTS = 4096, 256, 5


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def random_prompts(count: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocab_size, (count, length), generator=generator).tolist()


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)


def our_decode(llm: LLM, prompts: list[list[int]], steps: int) -> float:
    """Seconds per decode step, everything included that a step needs."""
    start = time.perf_counter()
    outputs = llm.generate(prompts, greedy(steps + 1), progress=False)
    total = time.perf_counter() - start
    return (total - max(output.usage.ttft_s or 0.0 for output in outputs)) / steps


@torch.inference_mode()
def bare_decode(model: torch.nn.Module, prompts: list[list[int]], steps: int) -> float:
    cache = DynamicCache(config=model.config)
    tokens = torch.tensor(prompts)
    logits = model(tokens, cache=cache, use_cache=True, logits_to_keep=1).logits
    token = logits[:, -1].argmax(-1, keepdim=True)
    start = time.perf_counter()
    for _ in range(steps):
        logits = model(token, cache=cache, use_cache=True, logits_to_keep=1).logits
        token = logits[:, -1].argmax(-1, keepdim=True)
        token.tolist()  # an engine has to look at its tokens
    return (time.perf_counter() - start) / steps


def generate_decode(model: torch.nn.Module, prompts: list[list[int]], steps: int) -> float:
    tokens = torch.tensor(prompts)

    def run(count: int) -> float:
        return timed(
            lambda: model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
            )
        )

    return (run(steps + 1) - run(1)) / steps


def our_prefill(llm: LLM, prompts: list[list[int]]) -> float:
    return timed(lambda: llm.generate(prompts, greedy(1), progress=False))


@torch.inference_mode()
def bare_prefill(model: torch.nn.Module, prompts: list[list[int]]) -> float:
    tokens = torch.tensor(prompts)

    def run() -> None:
        cache = DynamicCache(config=model.config)
        logits = model(tokens, cache=cache, use_cache=True, logits_to_keep=1).logits
        logits[:, -1].argmax(-1).tolist()

    return timed(run)


def generate_prefill(model: torch.nn.Module, prompts: list[list[int]]) -> float:
    tokens = torch.tensor(prompts)
    return timed(
        lambda: model.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=1, do_sample=False
        )
    )


def floor(model_name: str, dtype: str, repeats: int, steps: int) -> list[dict[str, object]]:
    """Measure the engine against both peers."""
    model = AutoModelForCausalLM.from_pretrained(model_name, dtype=getattr(torch, dtype)).eval()
    model.generation_config.eos_token_id = None
    vocab = model.config.vocab_size
    rows: list[dict[str, object]] = []
    with LLM(model_name, dtype=dtype, num_slots=16_384, enable_prefix_caching=False) as llm:
        cases: list[tuple[str, list[Callable[[list[list[int]]], float]], int, int]] = [
            (
                f"decode, batch {batch}",
                [
                    lambda prompts: our_decode(llm, prompts, steps),
                    lambda prompts: bare_decode(model, prompts, steps),
                    lambda prompts: generate_decode(model, prompts, steps),
                ],
                batch,
                PROMPT,
            )
            for batch in (1, 16)
        ]
        cases.append(
            (
                "prefill, 1,000 tokens",
                [
                    lambda prompts: our_prefill(llm, prompts),
                    lambda prompts: bare_prefill(model, prompts),
                    lambda prompts: generate_prefill(model, prompts),
                ],
                1,
                1000,
            )
        )
        for name, runs, batch, length in cases:
            times: list[list[float]] = []
            for repeat in range(repeats + 1):
                prompts = random_prompts(batch, length, vocab, repeat)
                # Who goes first changes, so that nobody always finds the caches warm.
                order = [(repeat + i) % len(runs) for i in range(len(runs))]
                measured = {i: runs[i](prompts) for i in order}
                if repeat:  # the first one warms up
                    times.append([measured[i] for i in range(len(runs))])
            ours, bare, generate = (
                statistics.median(column) for column in zip(*times, strict=True)
            )
            rows.append(
                {
                    "case": name,
                    "ours_ms": ours * 1e3,
                    "forward_ms": bare * 1e3,
                    "generate_ms": generate * 1e3,
                    "ratio_forward": statistics.median(row[1] / row[0] for row in times),
                    "ratio_generate": statistics.median(row[2] / row[0] for row in times),
                }
            )
    return rows


def reuse(model_name: str, dtype: str, repeats: int) -> dict[str, object]:
    """Measure time to first token of requests that share a system prompt."""
    cold: list[float] = []
    warm: list[float] = []
    computed: dict[bool, int] = {}
    engines = {
        caching: LLM(model_name, dtype=dtype, num_slots=32_768, enable_prefix_caching=caching)
        for caching in (False, True)
    }
    for repeat in range(repeats + 1):
        shared, *own = random_prompts(1 + REQUESTS, SHARED, engines[True].vocab_size, repeat)
        prompts = [shared + tokens[:OWN] for tokens in own]
        for caching, llm in engines.items():
            llm.cache.reset()
            before = llm.stats().computed_tokens
            seconds = our_prefill(llm, prompts)
            computed[caching] = llm.stats().computed_tokens - before
            if repeat:
                (warm if caching else cold).append(seconds)
    for llm in engines.values():
        llm.close()
    gain = statistics.median(a / b for a, b in zip(cold, warm, strict=True))
    predicted = computed[False] / computed[True]
    return {
        "computed_cold": computed[False],
        "computed_warm": computed[True],
        "cold_s": statistics.median(cold),
        "warm_s": statistics.median(warm),
        "gain": gain,
        "predicted": predicted,
        "share_of_predicted": gain / predicted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(EMBEDDED), help="directory or hub name")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=0, help="threads of torch; 0 leaves them")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=48, help="decode steps of a repeat")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    rows = floor(arguments.model, arguments.dtype, arguments.repeats, arguments.steps)
    gain = reuse(arguments.model, arguments.dtype, max(1, arguments.repeats // 2))
    result = {
        "model": arguments.model if arguments.model != str(EMBEDDED) else "embedded",
        "dtype": arguments.dtype,
        "threads": torch.get_num_threads(),
        "floor": rows,
        "reuse": gain,
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['model']}, {result['dtype']}, {result['threads']} threads")
    print(
        f"{'':<24}{'ours':>10}{'forward':>10}{'generate':>10}"
        f"{'ratio to forward':>18}{'generate':>10}"
    )
    for row in rows:
        print(
            f"{row['case']:<24}{row['ours_ms']:>8.2f}ms{row['forward_ms']:>8.2f}ms"
            f"{row['generate_ms']:>8.2f}ms{row['ratio_forward']:>18.2f}{row['ratio_generate']:>10.2f}"
        )
    print(
        f"{REQUESTS} requests share {SHARED} tokens: {gain['computed_cold']} tokens computed "
        f"without the cache, {gain['computed_warm']} with it\n"
        f"first tokens after {gain['cold_s']:.2f} s and {gain['warm_s']:.2f} s: "
        f"{gain['gain']:.2f} times sooner, {gain['share_of_predicted']:.0%} of "
        f"the predicted {gain['predicted']:.2f}"
    )


if __name__ == "__main__":
    main()
