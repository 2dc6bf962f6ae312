"""One door: a model, prompts in, text out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from radix_rs.attention import make_backend
from radix_rs.engine.engine import Engine
from radix_rs.engine.job import Job
from radix_rs.engine.output import EngineStats, RequestOutput
from radix_rs.engine.progress import Progress
from radix_rs.engine.prompts import encode_prompt, split_prompts
from radix_rs.engine.turns import Turns
from radix_rs.errors import InvalidInputError, RadixError
from radix_rs.memory import KVPool, num_slots_for, torch_dtype
from radix_rs.memory.pool import bytes_per_token
from radix_rs.model import LoadedModel, ModelRunner, SamplingParams, load_model
from radix_rs.scheduler import Scheduler

if TYPE_CHECKING:
    import torch

    from radix_rs import PrefixCache, WeightedPolicy

# Of the memory that is free after the model is loaded, if no size is given.
_DEFAULT_SHARE = {"cuda": 0.85, "cpu": 0.25}
# A pool larger than this many of the longest texts is of no use by default.
_DEFAULT_TEXTS = 64


class LLM:
    """A causal language model with a prefix cache.

    Parameters
    ----------
    model
        None for the small model that ships inside the package, a local directory, a ``.gguf``
        file, or a name on the Hugging Face hub.
    page_size
        Tokens per page of the cache, a power of two; only whole pages are shared.
    num_slots, kv_bytes, kv_share
        Size of the KV pool: in tokens, in bytes, or as a share of the free memory; at most one
        of them. Without any it is a share, bounded by what ``max_running`` texts can use.
    dtype
        What to compute in: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``: what the
        weights are stored in. In float32 the cache changes no token; with fewer bits the order of
        additions can decide between tokens that are all but equally likely.
    device
        A torch device, or ``"auto"``.
    kv_dtype
        What K and V are stored in; ``"auto"`` is what is computed in.
    enable_prefix_caching
        Whether prefixes are kept and reused.
    attention_backend
        Name of the backend, or ``"auto"``.
    policy
        What the cache evicts first: a name or a `WeightedPolicy`, see `RadixTree`.
    max_running
        Requests that run at a time.
    max_batch_tokens
        Tokens per step.

    Raises
    ------
    InvalidInputError
        If an argument is out of range, or the model cannot be found, read or served.

    Examples
    --------
    >>> with LLM(num_slots=1024) as llm:
    ...     chat = [{"role": "user", "content": "Why is the sky blue?"}]
    ...     params = SamplingParams(temperature=0, max_tokens=8)
    ...     (output,) = llm.generate(chat, params, progress=False)
    >>> output.usage.completion_tokens
    8
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        page_size: int = 1,
        num_slots: int | None = None,
        kv_bytes: int | None = None,
        kv_share: float | None = None,
        dtype: str | torch.dtype = "auto",
        device: str | torch.device = "auto",
        kv_dtype: str | torch.dtype = "auto",
        enable_prefix_caching: bool = True,
        attention_backend: str = "auto",
        policy: str | WeightedPolicy = "lru",
        max_running: int = 64,
        max_batch_tokens: int = 2048,
    ) -> None:
        from radix_rs import PrefixCache

        self._closed = False
        self._name = "embedded model" if model is None else str(model)
        self._turns = Turns(self._end)
        self._model = load_model(model, dtype=dtype, device=device)
        stored = self._model.dtype if kv_dtype == "auto" else torch_dtype(kv_dtype)
        shapes = [layer.shape for layer in self._model.layers]
        slots = _pool_slots(
            self._model, bytes_per_token(shapes, stored), page_size, num_slots, kv_bytes, kv_share
        )
        self._cache = PrefixCache(slots, page_size, policy, enabled=enable_prefix_caching)
        self._pool = KVPool(shapes, slots, dtype=stored, device=self._model.device)
        backend = make_backend(attention_backend, self._model.layers, self._pool, self._model.dtype)
        self._scheduler = Scheduler(
            self._cache,
            page_size=page_size,
            max_running=max_running,
            max_batch_tokens=max_batch_tokens,
            shares_prefixes=enable_prefix_caching,
        )
        self._engine = Engine(ModelRunner(self._model, backend), self._scheduler)
        self._max_len = min(slots, self._model.max_positions or slots)

    @property
    def cache(self) -> PrefixCache:
        """The prefix cache: its tree, its pool and their counters."""
        return self._cache

    @property
    def tokenizer(self) -> Any | None:
        """The transformers tokenizer of the model, None if it has none."""
        self._check_open()
        return self._model.tokenizer

    @property
    def vocab_size(self) -> int:
        """Token ids are below this."""
        self._check_open()
        return self._model.vocab_size

    @property
    def max_len(self) -> int:
        """The longest text, prompt and continuation, in tokens."""
        return self._max_len

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Continue prompts, all of them together.

        Parameters
        ----------
        prompts
            A text, a list of token ids, a list of messages (``{"role": ..., "content": ...}``),
            or a list of these. A text is continued as it stands, without a chat template; for a
            chat model give messages.
        sampling_params
            For all prompts, or one for each; None for the defaults.
        progress
            Show a bar, if standard error is a terminal.

        Returns
        -------
        list of RequestOutput
            In the order of the prompts; ``n`` of them in a row for a prompt with ``n > 1``.

        Raises
        ------
        InvalidInputError
            If a prompt is empty, too long, or not one; nothing has been computed then.
        KeyboardInterrupt
            After all that was on its way has been aborted and its slots have been given back.
        """
        self._check_open()
        singles = split_prompts(prompts)
        params = _params_for(singles, sampling_params)
        jobs = [
            job
            for prompt, one in zip(singles, params, strict=True)
            for job in self._jobs(prompt, one, is_streamed=False)
        ]
        try:
            with self._turns:
                for job in jobs:
                    self._engine.submit(job)
            with Progress(len(jobs), is_shown=progress) as bar:
                running = jobs
                while running:
                    with self._turns:
                        # Another thread may have brought it to its end meanwhile.
                        if running[0].finish_reason is None:
                            self._engine.step()
                    running = [job for job in running if job.finish_reason is None]
                    if progress:
                        bar.update(
                            len(jobs) - len(running), sum(len(job.request.output) for job in jobs)
                        )
        except BaseException:
            self._abort(jobs)
            raise
        for job in jobs:
            if job.error is not None:
                raise job.error
        return [job.output() for job in jobs]

    def stream(
        self, prompt: Any, sampling_params: SamplingParams | None = None
    ) -> Generator[RequestOutput, None, None]:
        """Continue one prompt and return what there is after each token.

        Several streams may be read in turns, and beside :meth:`generate`: they share batches.
        Closing the iterator aborts the request.

        Parameters
        ----------
        prompt
            A text, a list of token ids, or a list of messages. A text is continued as it stands,
            without a chat template; for a chat model give messages.
        sampling_params
            How it is continued; ``n`` must be 1.

        Returns
        -------
        generator of RequestOutput
            Each with all text and tokens so far; the last one has a ``finish_reason``.

        Raises
        ------
        InvalidInputError
            As :meth:`generate`, at once and not at the first token.
        """
        self._check_open()
        params = sampling_params or SamplingParams()
        if params.n != 1:
            raise InvalidInputError(f"a stream has one continuation, not n={params.n}")
        (job,) = self._jobs(prompt, params, is_streamed=True)
        return self._stream(job)

    def stats(self) -> EngineStats:
        """Return what the engine has done so far."""
        self._check_open()
        usage = self._scheduler.usage
        return EngineStats(
            num_steps=usage.num_steps,
            computed_tokens=usage.computed_tokens,
            cached_tokens=usage.cached_tokens,
            num_retractions=usage.num_retractions,
            kv_bytes_pool=self._pool.size_bytes,
            kv_bytes_used=self._pool.used_bytes(usage.used_tokens),
            kv_bytes_contiguous=self._pool.contiguous_bytes([usage.contiguous_tokens]),
        )

    def close(self) -> None:
        """Abort what is on its way and give model and KV pool back; twice is harmless."""
        if self._closed:
            return
        with self._turns:
            self._closed = True
            self._engine.abort_all()
            del self._engine, self._pool, self._model

    def __repr__(self) -> str:
        if self._closed:
            return f"LLM({self._name!r}, closed)"
        cache = self._cache
        return (
            f"LLM({self._name!r}, dtype={str(self._model.dtype).removeprefix('torch.')}, "
            f"device={self._model.device}, num_slots={cache.pool.num_slots}, "
            f"page_size={cache.page_size}, max_len={self._max_len})"
        )

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _jobs(self, prompt: Any, params: SamplingParams, *, is_streamed: bool) -> list[Job]:
        ids = encode_prompt(prompt, self._model.tokenizer, self._model.vocab_size)
        room = self._max_len - len(ids)
        if room < 1:
            raise InvalidInputError(
                f"a prompt of {len(ids)} tokens leaves no room for a continuation: texts have at "
                f"most {self._max_len} tokens here"
            )
        if params.stop and self._model.tokenizer is None:
            raise InvalidInputError("stop strings need a tokenizer, and this model has none")
        return [
            Job(
                ids,
                params,
                index,
                max_tokens=min(params.max_tokens, room),
                eos_token_ids=self._model.eos_token_ids,
                tokenizer=self._model.tokenizer,
                is_streamed=is_streamed,
            )
            for index in range(params.n)
        ]

    def _stream(self, job: Job) -> Generator[RequestOutput, None, None]:
        try:
            with self._turns:
                self._check_open()
                self._engine.submit(job)
            seen = 0
            is_over = False
            while not is_over:
                with self._turns:
                    # Other streams, or other threads, may have brought this one further.
                    if len(job.request.output) == seen and job.finish_reason is None:
                        self._engine.step()
                    is_new = len(job.request.output) > seen
                    seen = len(job.request.output)
                    is_over = job.finish_reason is not None
                    output = job.output()
                if job.error is not None:
                    raise job.error
                if is_new or is_over:
                    yield output
        finally:
            self._abort([job])

    def _abort(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._turns.leave(job)

    def _end(self, job: Job) -> None:
        if not self._closed:
            self._engine.abort(job)

    def _check_open(self) -> None:
        if self._closed:
            raise RadixError("the engine is closed")


def _params_for(
    prompts: Sequence[Any], params: SamplingParams | Sequence[SamplingParams] | None
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * len(prompts)
    if not isinstance(params, Sequence) or not all(
        isinstance(one, SamplingParams) for one in params
    ):
        raise InvalidInputError("sampling_params are SamplingParams, or a list of them")
    if len(params) != len(prompts):
        raise InvalidInputError(f"{len(params)} sampling parameters for {len(prompts)} prompts")
    return list(params)


def _pool_slots(
    model: LoadedModel,
    token_bytes: int,
    page_size: int,
    num_slots: int | None,
    kv_bytes: int | None,
    kv_share: float | None,
) -> int:
    sizes = {"num_slots": num_slots, "kv_bytes": kv_bytes, "kv_share": kv_share}
    if any(size is not None for size in sizes.values()):
        return num_slots_for(token_bytes, page_size, device=model.device, **sizes)  # type: ignore[arg-type]
    share = _DEFAULT_SHARE.get(model.device.type, 0.5)
    slots = num_slots_for(token_bytes, page_size, kv_share=share, device=model.device)
    if model.max_positions is None:
        return slots
    most = -(-model.max_positions // page_size) * page_size * _DEFAULT_TEXTS
    return min(slots, most)
