"""The loop: schedule, run the model, sample, and let requests come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from radix_rs.attention import Span
from radix_rs.engine.job import Job
from radix_rs.model import ModelRunner, Sampled, sample
from radix_rs.scheduler import Scheduler, Work


class Engine:
    """Takes jobs and advances all of them by one step at a time.

    Not safe for several threads at once; :class:`radix_rs.engine.LLM` holds a lock around it.

    Parameters
    ----------
    runner
        Runs the model.
    scheduler
        Decides what it runs.
    """

    def __init__(self, runner: ModelRunner, scheduler: Scheduler) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._jobs: dict[int, Job] = {}  # by identity of their request

    def submit(self, job: Job) -> None:
        """Take a job."""
        self._jobs[id(job.request)] = job
        self._scheduler.submit(job.request)

    def step(self) -> None:
        """Compute one batch, and record the tokens that follow from it.

        If it fails, at any point, nothing is lost but the step: the jobs are as before it, and
        can be stepped again or aborted.
        """
        work = self._scheduler.schedule()
        assert work, "a step without work: requests wait for something that nobody computes"
        tokens: list[NDArray[np.integer[Any]] | list[int]] = []
        spans = []
        wanted = []
        for index, (request, start, stop) in enumerate(work):
            assert request.sequence is not None, "work of a request that does not run"
            tokens.append(request.token_range(start, stop))
            slots = request.sequence.slots
            spans.append(Span(slots, start, stop, request.run_length(slots, stop)))
            if stop == request.num_tokens:  # all that is known is computed then
                wanted.append(index)
        logits = self._runner.forward(np.concatenate(tokens, dtype=np.int64), spans, wanted)
        jobs = [self._jobs[id(work[index].request)] for index in wanted]
        sampled = [] if logits is None else sample(logits, [job.draw() for job in jobs])
        self._record(work, jobs, sampled)

    def abort(self, job: Job) -> None:
        """End a job at any moment; harmless if it has ended."""
        if self._jobs.pop(id(job.request), None) is not None:
            self._scheduler.abort(job.request)
            job.finish("abort")

    def abort_all(self) -> None:
        """End all jobs."""
        for job in tuple(self._jobs.values()):
            self.abort(job)

    def _record(self, work: list[Work], jobs: list[Job], sampled: list[Sampled]) -> None:
        self._scheduler.commit(work)
        for job, one in zip(jobs, sampled, strict=True):
            self._scheduler.append(job.request, one.token)
            job.take(one)
            if job.finish_reason is not None:
                del self._jobs[id(job.request)]
                self._scheduler.finish(job.request)
