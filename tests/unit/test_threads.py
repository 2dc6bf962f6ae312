"""Threads at the boundary: nobody waits, nobody corrupts, the interpreter is let go."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from radix_rs import PrefixCache, RadixTree
from radix_rs.errors import CapacityError, LeaseError, RadixError

TOKENS = np.arange(2_000_000, dtype=np.int32)


def _run(*bodies):
    """Run the bodies side by side; raise what one of them raised."""
    errors = []

    def guarded(body):
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_other_threads_run_while_a_long_call_does():
    tree = RadixTree()
    tree.insert(TOKENS, TOKENS)
    wide = TOKENS.astype(np.int64)
    done = threading.Event()
    ticks = 0

    def work():
        for _ in range(50):
            assert tree.match_prefix(wide).length == len(wide)
        done.set()

    def tick():
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0)

    _run(work, tick)
    # With the interpreter held all along there would be one turn between two calls: 50.
    assert ticks > 200


def test_a_sequence_in_use_elsewhere_is_an_error_and_never_a_wait():
    cache = PrefixCache(4_000_000)
    sequence = cache.begin([1])
    busy = 0
    stop = threading.Event()

    def work():
        for _ in range(20):
            sequence.append(TOKENS)
            sequence.truncate(1)
        stop.set()

    def look():
        nonlocal busy
        while not stop.is_set():
            for call in (lambda: sequence.num_tokens, lambda: sequence.reserve(0)):
                try:
                    call()
                except LeaseError as error:
                    busy += "in use by another thread" in str(error)

    def tolerant():
        # The looker may be in the way of the worker just as well.
        while True:
            try:
                return work()
            except LeaseError:
                continue

    _run(tolerant, look)
    assert busy > 0
    assert sequence.num_tokens == 1
    cache.check()


def test_a_lease_in_use_elsewhere_is_an_error_and_never_a_wait():
    tree = RadixTree()
    tree.insert([0], [0])
    lease = tree.lock_prefix([0])
    outcomes = []

    def grow():
        try:
            tree.insert(TOKENS, TOKENS, lease=lease)
            outcomes.append("grown")
        except LeaseError:
            outcomes.append("refused")

    _run(grow, grow, grow)
    assert "grown" in outcomes
    assert lease.length == len(TOKENS)
    tree.check()


@pytest.mark.parametrize("page_size", [1, 4])
def test_threads_hammer_one_cache(page_size):
    cache = PrefixCache(4096, page_size)
    rounds = 300

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(rounds):
            prompt = np.arange(random.integers(1, 400)) % random.choice([7, 1000])
            try:
                with cache.begin(prompt) as sequence:
                    assert sequence.cached_len < max(1, len(prompt))
                    sequence.reserve(len(prompt) - sequence.cached_len)
                    sequence.commit(len(prompt))
                    for branch in sequence.fork(2, at=int(random.integers(0, len(prompt) + 1))):
                        branch.append([1, 2, 3])
                        if random.integers(2):
                            branch.finish()
                    if random.integers(2):
                        sequence.truncate(int(random.integers(0, len(prompt) + 1)))
                    if random.integers(4):
                        sequence.finish()
            except CapacityError:
                pass
            if random.integers(50) == 0:
                cache.reset()

    _run(*(lambda seed=seed: work(seed) for seed in range(4)))
    cache.check()
    stats = cache.stats()
    assert (stats["held_tokens"], stats["protected_tokens"], stats["num_sequences"]) == (0, 0, 0)
    assert stats["num_free"] + stats["cached_tokens"] == 4096


def test_threads_hammer_one_tree_and_every_error_is_ours():
    tree = RadixTree(4)
    free = [np.arange(i * 64, (i + 1) * 64, dtype=np.int32) for i in range(32)]

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(400):
            tokens = np.arange(64) % random.choice([3, 5, 64]) + random.integers(3)
            found = tree.match_prefix(tokens)
            assert found.length == sum(map(len, found.segments))
            try:
                with tree.lock_prefix(tokens) as lease, tree.lock(lease.handle) as again:
                    assert len(lease.slots) == lease.length == again.length
                tree.touch(tokens)
                slots = free.pop() if free else tree.evict(64)
            except (RadixError, IndexError):
                continue
            if len(slots) == 64:
                done = tree.insert(tokens, slots)
                assert done.length == 64
            tree.node(tree.match_prefix([]).handle)

    _run(*(lambda seed=seed: work(seed) for seed in range(4)))


def test_leases_and_views_at_the_end_of_the_interpreter():
    import subprocess
    import sys

    code = """
import signal
import threading
import numpy as np
from radix_rs import PrefixCache, RadixTree
tree = RadixTree()
tree.insert(range(1000), range(1000))
lease = tree.lock_prefix(range(500))
views = lease.segments
cache = PrefixCache(64)
sequence = cache.begin([1, 2, 3], out=np.zeros(64, np.int32))
slots = sequence.reserve(3)
fence = cache.fence()
def forever():
    wide = np.arange(1_000_000)
    while True:
        tree.match_prefix(wide)
threading.Thread(target=forever, daemon=True).start()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_interrupt_arrives_after_a_long_call_and_harms_nothing():
    tree = RadixTree()
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))

    def work():
        for _ in range(1_000_000):
            tree.insert(TOKENS, TOKENS)
            assert len(tree.evict(len(TOKENS))) == len(TOKENS)

    timer.start()
    with pytest.raises(KeyboardInterrupt):
        work()
    timer.join()
    tree.check()
    assert tree.cached_tokens in (0, len(TOKENS))
