"""Continuous batching: requests join and leave between steps."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from radix_rs.errors import CapacityError, InvalidInputError
from radix_rs.scheduler.cache import Cache, CacheSequence
from radix_rs.scheduler.request import Request, Status
from radix_rs.scheduler.sharing import leader_of, must_wait
from radix_rs.scheduler.usage import StepUsage

# A request gets at most one in so many free slots for later.
_AHEAD_SHARE = 4


class Work(NamedTuple):
    """Tokens ``start .. stop`` of a request, to be computed in this step."""

    request: Request
    start: int
    stop: int


class Scheduler:
    """Decides what each step computes.

    Requests are served in the order they came. Slots for a whole prompt are taken at admission,
    so a prefill never runs dry; slots for sampled tokens are taken step by step, and when there
    are none the request that was admitted last is taken off. What it computed stays cached, and
    it goes on from there with the same tokens when there is room. So the oldest request always
    gets on.

    While slots are plentiful, a request also gets some for tokens that it may sample later, so that
    a text lies in consecutive slots and attention can read it in place. They are only ever taken
    from free slots, and given back before anything is evicted for want of them.

    Parameters
    ----------
    cache
        Where slots and cached prefixes come from.
    page_size
        Tokens per page of the cache.
    max_running
        Requests that run at a time.
    max_batch_tokens
        Tokens per step; longer prefills are cut into chunks.
    shares_prefixes
        Whether the cache keeps prefixes, so that waiting for one can be worth it.

    Raises
    ------
    InvalidInputError
        If a step cannot hold one token of every running request.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        page_size: int = 1,
        max_running: int = 64,
        max_batch_tokens: int = 2048,
        shares_prefixes: bool = True,
    ) -> None:
        if max_running < 1 or max_batch_tokens < max_running:
            raise InvalidInputError(
                f"max_batch_tokens ({max_batch_tokens}) must be at least max_running "
                f"({max_running}), and that at least 1"
            )
        self._cache = cache
        self._page_size = page_size
        self._max_running = max_running
        self._max_batch_tokens = max_batch_tokens
        self._shares_prefixes = shares_prefixes
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # in the order of admission
        self.usage = StepUsage()

    @property
    def num_waiting(self) -> int:
        """Requests that are not admitted yet, or were taken off."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that hold slots."""
        return len(self._running)

    def submit(self, request: Request) -> None:
        """Put a request at the end of the queue."""
        assert request.status is Status.WAITING, "a request is submitted once"
        self._waiting.append(request)

    def schedule(self) -> list[Work]:
        """Return what to compute next: decodes first, then chunks of prefills, then newcomers.

        Calling it again without :meth:`commit` in between gives work for the same tokens.

        Raises
        ------
        CapacityError
            If a request is alone and still finds no slots, because something outside holds them.
        """
        self._mend()
        work: list[Work] = []
        prefills: list[Request] = []
        budget = self._max_batch_tokens
        for request in tuple(self._running):
            if request.sequence is None:
                continue  # taken off for one before it
            start = self._start(request, request.sequence)
            if request.num_tokens - start > 1:
                prefills.append(request)
            elif self._make_room(request, request.sequence):
                work.append(Work(request, start, start + 1))
                budget -= 1
        for request in prefills:
            budget -= self._chunk(request, budget, work)
        if self._waiting and budget > 0:
            self._admit(budget, work)
        return work

    def commit(self, work: list[Work]) -> None:
        """Record that K and V of this work exist now; whole pages become shareable."""
        for item in work:
            assert item.request.sequence is not None, "work of a request that does not run"
            start, stop = item.request.sequence.commit(item.stop)
            if start < stop:  # another request was first with these tokens: its slots now
                item.request.forget_run(start)
            self.usage.computed_tokens += item.stop - item.start
        self.usage.num_steps += 1
        self._note_usage()

    def append(self, request: Request, token: int) -> None:
        """Record the token that was sampled for a request."""
        assert request.sequence is not None, "a token for a request that does not run"
        request.output.append(token)
        request.sequence.append((token,))

    def finish(self, request: Request) -> None:
        """End a request; what it computed stays cached."""
        self._end(request, keep=True)

    def abort(self, request: Request) -> None:
        """End a request at any moment; nothing that is not cached already is kept."""
        self._end(request, keep=False)

    def _end(self, request: Request, *, keep: bool) -> None:
        # Wherever it is: an interrupt may have come while it went from one list to the other.
        if request in self._waiting:
            self._waiting.remove(request)
        if request in self._running:
            self._running.remove(request)
        request.status = Status.FINISHED
        sequence, request.sequence = request.sequence, None
        if sequence is not None:
            if keep:
                sequence.finish()
            else:
                sequence.abort()

    def _mend(self) -> None:
        """Put right what an interrupt in the middle of a change has left.

        A request is in the list that its sequence says, and its sequence has its tokens.
        """
        for request in tuple(self._running):
            sequence = request.sequence
            if sequence is None:
                self._running.remove(request)
                if request not in self._waiting:
                    self._waiting.appendleft(request)
                request.status = Status.WAITING
            elif sequence.num_tokens != request.num_tokens:
                if sequence.num_tokens > request.num_tokens:
                    sequence.truncate(request.num_tokens)
                else:
                    sequence.append(request.tokens[sequence.num_tokens :])

    @staticmethod
    def _start(request: Request, sequence: CacheSequence) -> int:
        """Return the first token to compute.

        The last token is computed again if a step failed after it and before the next was sampled.
        """
        return min(sequence.num_computed, request.num_tokens - 1)

    def _chunk(self, request: Request, budget: int, work: list[Work]) -> int:
        """Add as much of a prefill as the step has room for; return its tokens."""
        if request.sequence is None or budget <= 0:
            return 0
        start = self._start(request, request.sequence)
        stop = min(request.num_tokens, start + budget)
        work.append(Work(request, start, stop))
        return stop - start

    def _make_room(self, request: Request, sequence: CacheSequence) -> bool:
        """Find a slot for a sampled token; False if the request itself had to make way."""
        while sequence.num_reserved < request.num_tokens:
            needed = request.num_tokens - sequence.num_reserved
            try:
                sequence.reserve(needed + self._ahead(request, needed))
            except CapacityError:
                if len(self._running) == 1:
                    raise
                newest = self._running[-1]
                self._retract(newest)
                if newest is request:
                    return False
        return True

    def _ahead(self, request: Request, needed: int) -> int:
        """Return how many slots a request gets beyond what it needs now."""
        free = self._cache.pool.num_free - needed
        if free < self._page_size:
            self._give_back_ahead()
            return 0
        return min(request.num_ahead, free // _AHEAD_SHARE)

    def _give_back_ahead(self) -> None:
        """Take back slots that were given for later."""
        for request in self._running:
            sequence = request.sequence
            if sequence is not None and sequence.num_reserved > request.num_tokens:
                sequence.truncate(request.num_tokens)

    def _retract(self, request: Request) -> None:
        """Take the newest request off; its whole pages stay cached until someone needs them."""
        assert request is self._running[-1], "the newest one makes way"
        assert request.sequence is not None, "a running request holds a sequence"
        sequence, request.sequence = request.sequence, None
        self._waiting.appendleft(request)
        self._running.pop()
        request.status = Status.WAITING
        sequence.finish()
        request.num_retractions += 1
        self.usage.num_retractions += 1

    def _admit(self, budget: int, work: list[Work]) -> None:
        """Let waiting requests join, in order, as long as tokens and slots last."""
        for request in tuple(self._waiting):
            if budget <= 0 or len(self._running) >= self._max_running:
                break
            if request.sequence is not None:  # admitted by a step that was interrupted then
                self._waiting.remove(request)
                request.status = Status.RUNNING
                continue
            if must_wait(request):
                continue  # those behind it may go first
            matched = self._matched(request)
            if self._shares_prefixes:
                request.waits_for = leader_of(request, matched, self._running, self._page_size)
                if request.waits_for is not None:
                    continue
            if not self._take_slots(request, matched):
                break
            budget -= self._chunk(request, budget, work)

    def _matched(self, request: Request) -> int:
        if not self._shares_prefixes:
            return 0
        match = self._cache.tree.match_prefix(request.tokens[:-1], request.namespace)
        return int(match.length)

    def _take_slots(self, request: Request, matched: int) -> bool:
        """Admit a request if the cache can give slots for all its tokens."""
        pages = -(-(request.num_tokens - matched) // self._page_size)
        # One page for each request that runs: an admission must not take a running one off.
        needed = (pages + len(self._running)) * self._page_size
        available = self._available()
        if needed > available:
            self._give_back_ahead()
            available = self._available()
        # Only a real begin tells what of the match was evictable, and that leaves its stamp on
        # the prefix; so it is not tried again before there is more to be had.
        refused = request.refused_at is not None and available <= request.refused_at
        if self._running and (needed > available or refused):
            return False
        sequence = self._cache.begin(request.tokens, request.namespace)
        try:
            missing = request.num_tokens - sequence.num_reserved
            sequence.reserve(missing + self._ahead(request, missing))
        except CapacityError:
            sequence.abort()
            if not self._running:
                raise
            request.refused_at = available
            return False
        except BaseException:
            sequence.abort()
            raise
        # In an order that `_mend` and `_admit` can pick up at any point.
        request.refused_at = None
        request.forget_run(0)
        self._running.append(request)
        request.sequence = sequence
        request.status = Status.RUNNING
        self._waiting.remove(request)
        self.usage.cached_tokens += sequence.cached_len
        if not request.was_admitted:
            request.was_admitted = True
            request.cached_tokens = sequence.cached_len
        return True

    def _available(self) -> int:
        return self._cache.pool.num_free + self._cache.tree.evictable_tokens

    def _note_usage(self) -> None:
        """Keep the lengths of the step at which running requests were longest together."""
        contiguous = own = 0
        for request in self._running:
            if request.sequence is not None:
                computed = request.sequence.num_computed
                contiguous += computed
                own += max(0, computed - request.sequence.num_published)
        if contiguous > self.usage.contiguous_tokens:
            self.usage.contiguous_tokens = contiguous
            self.usage.used_tokens = self._cache.tree.protected_tokens + own
