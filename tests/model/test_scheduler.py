"""The scheduler alone: a real cache, and a model that is a function of the tokens."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from radix_rs import PrefixCache
from radix_rs.errors import CapacityError, InvalidInputError
from radix_rs.scheduler import Request, Scheduler, Status, Work


def next_token(tokens: list[int]) -> int:
    return int.from_bytes(hashlib.blake2b(bytes(tokens), digest_size=1).digest()) % 5


class Loop:
    """An engine without a model, which checks the sums after each step."""

    def __init__(self, num_slots: int, page_size: int = 1, **arguments: int) -> None:
        self.enabled = arguments.pop("enabled", True)
        self.cache = PrefixCache(num_slots, page_size, enabled=bool(self.enabled))
        self.scheduler = Scheduler(
            self.cache,
            page_size=page_size,
            shares_prefixes=bool(self.enabled),
            **{"max_batch_tokens": 64, "max_running": 8, **arguments},
        )
        self.max_batch_tokens = arguments.get("max_batch_tokens", 64)
        self.requests: list[Request] = []

    def submit(self, prompt: list[int], max_output: int = 4) -> Request:
        request = Request(prompt, max_output)
        self.requests.append(request)
        self.scheduler.submit(request)
        return request

    @property
    def is_busy(self) -> bool:
        return any(request.status is not Status.FINISHED for request in self.requests)

    def step(self) -> list[Work]:
        work = self.scheduler.schedule()
        assert work, "nothing to do"
        assert sum(item.stop - item.start for item in work) <= self.max_batch_tokens
        taken: list[int] = []
        for request, start, stop in work:
            assert request.sequence is not None
            assert start == request.sequence.num_computed
            assert stop <= request.sequence.num_reserved
            taken += request.sequence.slots[start:stop].tolist()
        assert len(taken) == len(set(taken)), "two tokens of a step in one slot"
        self.scheduler.commit(work)
        for request, _, stop in work:
            if stop == request.num_tokens:
                self.scheduler.append(request, next_token(request.tokens.tolist()))
                if len(request.output) == request.max_output:
                    self.scheduler.finish(request)
        return work

    def run(self) -> int:
        steps = 0
        while self.is_busy:
            self.step()
            steps += 1
            assert steps < 10_000, "no progress"
        self.check_at_rest()
        return steps

    def check_at_rest(self) -> None:
        self.cache.check()
        stats = self.cache.stats()
        assert stats["num_free"] + stats["cached_tokens"] == stats["num_slots"]
        assert stats["protected_tokens"] == stats["num_sequences"] == 0


def single_run(prompt: list[int], max_output: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(max_output):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("page_size", [1, 16])
def test_requests_that_come_together_compute_a_shared_prefix_once(page_size: int) -> None:
    loop = Loop(8192, page_size, max_batch_tokens=2048)
    shared = [1] * 4096
    for own in range(5):
        loop.submit(shared + [2 + own] * 256, max_output=1)
    loop.run()
    assert loop.scheduler.usage.computed_tokens == 4096 + 5 * 256
    assert [request.cached_tokens for request in loop.requests] == [0] + [4096] * 4


def test_without_prefixes_all_is_computed() -> None:
    loop = Loop(1024, enabled=0)
    for own in range(3):
        loop.submit([1] * 100 + [own] * 10, max_output=1)
    loop.run()
    assert loop.scheduler.usage.computed_tokens == 330
    assert loop.scheduler.usage.cached_tokens == 0


def test_equal_prompts_compute_all_but_their_last_token_once() -> None:
    loop = Loop(1024)
    for _ in range(4):
        loop.submit([3] * 100, max_output=1)
    loop.run()
    assert loop.scheduler.usage.computed_tokens == 100 + 3


def test_the_next_turn_computes_only_what_is_new() -> None:
    loop = Loop(4096)
    first = loop.submit([1] * 1900 + [2] * 50, max_output=50)
    loop.run()
    turn = first.tokens.tolist() + [4] * 30
    assert len(turn) == 2030
    before = loop.scheduler.usage.computed_tokens
    second = loop.submit(turn, max_output=1)
    loop.run()
    # The last sampled token has never been through the model: it is new, too.
    assert loop.scheduler.usage.computed_tokens - before == 31
    assert second.cached_tokens == 1999


def test_prefills_are_cut_and_decodes_go_on_beside_them() -> None:
    loop = Loop(1024, max_batch_tokens=16, max_running=4)
    loop.submit([1] * 5, max_output=20)
    loop.step()
    loop.submit([2] * 60, max_output=1)
    work = loop.step()
    assert [(item.stop - item.start) for item in work] == [1, 15]
    loop.run()


def test_the_oldest_request_is_never_taken_off() -> None:
    loop = Loop(64)
    requests = [loop.submit([own] * 12, max_output=30) for own in range(1, 5)]
    loop.run()
    assert requests[0].num_retractions == 0
    assert loop.scheduler.usage.num_retractions > 0
    for request in requests:
        prompt = request.tokens.tolist()[: request.num_prompt]
        assert request.output == single_run(prompt, 30)


def test_what_was_taken_off_stays_cached() -> None:
    loop = Loop(66)
    first = loop.submit([1] * 30, max_output=12)
    second = loop.submit([2] * 30, max_output=12)
    loop.run()
    assert second.num_retractions > 0
    assert first.num_retractions == 0
    # Had nothing been kept, each retraction would compute 30 tokens and more again.
    assert loop.scheduler.usage.computed_tokens < 2 * (30 + 11) + 30 * second.num_retractions


def test_slots_for_later_are_given_back_before_anything_is_evicted() -> None:
    loop = Loop(100)
    loop.submit([1] * 20, max_output=1)
    loop.run()
    assert loop.cache.stats()["cached_tokens"] == 20
    loop.submit([2] * 10, max_output=60)
    loop.step()
    assert loop.requests[1].sequence is not None
    assert loop.requests[1].sequence.num_reserved > 11
    loop.submit([3] * 60, max_output=2)  # fits only without what is reserved for later
    loop.step()
    assert loop.cache.stats()["evicted_tokens"] == 0
    loop.run()


def test_an_admission_waits_for_room() -> None:
    loop = Loop(64)
    first = loop.submit([1] * 40, max_output=3)
    second = loop.submit([2] * 40, max_output=3)
    loop.step()
    assert first.status is Status.RUNNING
    assert second.status is Status.WAITING
    assert loop.scheduler.num_waiting == loop.scheduler.num_running == 1
    loop.run()
    assert second.num_retractions == 0


def test_a_request_that_finds_slots_held_from_outside_is_told() -> None:
    loop = Loop(32)
    guest = loop.cache.begin([9] * 20)
    guest.reserve(20)
    request = loop.submit([1] * 16)
    with pytest.raises(CapacityError) as error:
        loop.step()
    assert error.value.needed == 16
    assert error.value.free == 12
    guest.abort()
    loop.run()
    assert request.status is Status.FINISHED


def test_a_failed_step_can_be_tried_again() -> None:
    loop = Loop(64)
    loop.submit([1] * 30, max_output=3)
    assert loop.scheduler.schedule() == loop.scheduler.schedule()
    loop.run()
    assert loop.scheduler.usage.computed_tokens == 32


def test_a_step_that_failed_before_sampling_computes_the_last_token_again() -> None:
    loop = Loop(64)
    request = loop.submit([1] * 30, max_output=3)
    loop.scheduler.commit(loop.scheduler.schedule())
    assert loop.scheduler.schedule() == [Work(request, 29, 30)]
    loop.scheduler.append(request, next_token([1] * 30))
    loop.run()
    assert request.output == single_run([1] * 30, 3)


def test_limits_that_cannot_hold_are_refused() -> None:
    for arguments in ({"max_running": 0}, {"max_running": 9, "max_batch_tokens": 8}):
        with pytest.raises(InvalidInputError):
            Loop(16, **arguments)


def test_usage_tells_what_one_cache_per_request_would_have_held() -> None:
    loop = Loop(1024)
    loop.submit([1] * 50, max_output=1)
    loop.run()
    for own in range(3):
        loop.submit([1] * 50 + [2 + own] * 10, max_output=5)
    loop.run()
    usage = loop.scheduler.usage
    assert usage.contiguous_tokens == 3 * 64
    assert usage.used_tokens == 50 + 3 * 14


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=40)


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    page_size=st.sampled_from([1, 4]),
    num_pages=st.integers(12, 40),
    max_batch_tokens=st.integers(4, 40),
    max_running=st.integers(1, 4),
)
def test_any_schedule_gives_the_tokens_of_single_runs_and_leaks_nothing(
    data: st.DataObject, page_size: int, num_pages: int, max_batch_tokens: int, max_running: int
) -> None:
    num_slots = max(52, num_pages * page_size // 2)
    num_slots -= num_slots % -page_size
    loop = Loop(num_slots, page_size, max_batch_tokens=max_batch_tokens, max_running=max_running)
    waiting = data.draw(st.lists(prompts, min_size=1, max_size=8))
    aborted: set[int] = set()
    steps = 0
    while waiting or loop.is_busy:
        if waiting and (not loop.is_busy or data.draw(st.booleans())):
            loop.submit(waiting.pop(), max_output=data.draw(st.integers(1, 12)))
        if data.draw(st.integers(0, 9)) == 0:
            alive = [r for r in loop.requests if r.status is not Status.FINISHED]
            victim = data.draw(st.sampled_from(alive))
            loop.scheduler.abort(victim)
            aborted.add(id(victim))
            continue
        if loop.is_busy:
            loop.step()
        steps += 1
        assert steps < 5000, "no progress"
    loop.check_at_rest()
    for request in loop.requests:
        tokens = request.tokens.tolist()
        expected = single_run(tokens[: request.num_prompt], len(request.output))
        assert request.output == expected
        assert id(request) in aborted or len(request.output) == request.max_output


def test_runs_of_slots_are_known_and_forgotten() -> None:
    request = Request([1], 8)
    slots = np.array([4, 5, 6, 7, 3, 4], np.int32)
    assert request.run_length(slots, 3) == 3
    assert request.run_length(slots, 4) == 4
    assert request.run_length(slots, 5) == 4
    assert request.run_length(slots, 6) == 4
    slots[2] = 9
    request.forget_run(2)
    assert request.run_length(slots, 6) == 2
