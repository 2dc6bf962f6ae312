"""Fork, exit and sudden death with leases, views and threads alive."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

HAMMER = """
import os, random, sys, threading
import numpy as np
from radix_rs import PrefixCache
from radix_rs.errors import CapacityError

cache = PrefixCache(2048, 4)
stop = threading.Event()


def once(rng):
    tokens = [rng.randrange(3) for _ in range(rng.randrange(1, 60))]
    with cache.begin(tokens) as sequence:
        try:
            sequence.reserve(len(tokens) - sequence.num_reserved)
        except CapacityError:
            return
        sequence.commit(len(tokens))
        if rng.random() < 0.5:
            sequence.finish()
    if rng.random() < 0.2:
        cache.evict(rng.randrange(40))


def hammer(seed):
    rng = random.Random(seed)
    while not stop.is_set():
        once(rng)


def start(count, daemon=True):
    threads = [threading.Thread(target=hammer, args=(i,), daemon=daemon) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads
"""


def run(script: str) -> str:
    """Run a script on its own; it must end by itself, with nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HAMMER + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_was_forked_in_the_middle_of_others_work_goes_on():
    # A lock that another thread held at the fork would be held in the child for ever.
    assert run("""
        threads = start(3)
        held = cache.begin([7] * 40)
        held.reserve(40)
        held.commit(40)
        for _ in range(40):
            child = os.fork()
            if child == 0:
                rng = random.Random(99)
                for _ in range(200):
                    once(rng)
                assert held.slots.shape == (40,)
                held.finish()
                assert cache.begin([7] * 41).cached_len == 40
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0, status
        stop.set()
        for thread in threads:
            thread.join()
        held.finish()
        cache.check()
        print("went on")
    """).endswith("went on\n")


def test_an_interpreter_that_ends_with_leases_views_and_threads_alive_ends_cleanly():
    run("""
        start(2)
        sequence = cache.begin([1, 2, 3, 4, 5])
        sequence.reserve(5)
        sequence.commit(4)
        lease = cache.tree.lock_prefix([1, 2, 3, 4])
        pin = cache.tree.pin([1, 2, 3, 4], 60.0, 100)
        view = lease.segments[0]
        fence = cache.fence()

        class Late:
            def __del__(self):
                assert view.tolist() == sequence.slots[:4].tolist()

        late = Late()
    """)
