"""The loop: schedule, run the model, sample, and let requests come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from radix_rs.attention import Span
from radix_rs.engine.job import Job
from radix_rs.model import ModelRunner, Sampled, sample
from radix_rs.scheduler import Scheduler


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
        self._catch_up()
        work = self._scheduler.schedule()
        assert work or not self._jobs, "requests wait for something that nobody computes"
        if not work:
            return
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
        sampled = [] if logits is None else self._sample(logits, jobs)
        self._scheduler.commit(work)
        for job, one in zip(jobs, sampled, strict=True):
            if one is not None:
                job.sampled.append(one)
        self._catch_up()

    def abort(self, job: Job) -> None:
        """End a job at any moment; harmless if it has ended."""
        if id(job.request) in self._jobs:
            self._scheduler.abort(job.request)
            job.finish("abort")
            self._jobs.pop(id(job.request), None)

    def abort_all(self) -> None:
        """End all jobs."""
        for job in tuple(self._jobs.values()):
            self.abort(job)

    @staticmethod
    def _sample(logits: Tensor, jobs: list[Job]) -> list[Sampled | None]:
        """Choose the next tokens; a job for which that fails fails alone."""
        try:
            return [*sample(logits, [job.draw() for job in jobs])]
        except Exception:
            chosen: list[Sampled | None] = []
            for row, job in enumerate(jobs):
                try:
                    chosen += sample(logits[row : row + 1], [job.draw()])
                except Exception as error:  # whatever its parameters led to, it is its owner's
                    job.fail(error)
                    chosen.append(None)
            return chosen

    def _catch_up(self) -> None:
        """Draw the consequences of what was sampled, in this step or before it was interrupted."""
        for job in tuple(self._jobs.values()):
            request = job.request
            if len(request.output) < len(job.sampled):
                for one in job.sampled[len(request.output) :]:
                    self._scheduler.append(request, one.token)
            if job.has_news:
                job.take()
            if job.finish_reason is not None:
                if job.error is None:
                    self._scheduler.finish(request)
                else:
                    self._scheduler.abort(request)
                self._jobs.pop(id(request), None)
