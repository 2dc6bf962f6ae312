"""Pins through the bindings: time, budget, clocks that fail."""

import pickle

import pytest
from radix_rs import PrefixCache, RadixTree
from radix_rs.errors import InvalidInputError, PinBudgetError


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_a_pin_ends_by_the_clock_that_was_given(clock):
    tree = RadixTree(clock=clock)
    tree.insert([1, 2, 3], [1, 2, 3])
    pin = tree.pin([1, 2], ttl_s=1.5, budget=10)
    assert (pin.length, pin.deadline_s, tree.pinned_tokens) == (2, 1.5, 2)
    assert tree.evict(9).tolist() == [3]
    clock.now = 1.5
    assert tree.evict(9).tolist() == [1, 2]
    assert not pin.release()


def test_more_than_the_budget_is_refused_with_the_numbers(clock):
    tree = RadixTree(clock=clock)
    tree.insert([1, 2, 3], [1, 2, 3], "adapter")
    tree.insert([4, 5], [4, 5])
    first = tree.pin([1, 2, 3], 10, 4, "adapter")
    with pytest.raises(PinBudgetError) as caught:
        tree.pin([4, 5], 10, 4)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.needed, error.pinned, error.budget) == (2, 3, 4)
    assert "3 of 4" in str(error)
    assert first.release()
    assert tree.pin([4, 5], 10, 4).length == 2


def test_a_cache_pins_by_its_tree_and_a_pin_outlives_both(clock):
    cache = PrefixCache(8, clock=clock)
    with cache.begin([1, 2, 3]) as sequence:
        sequence.reserve(3)
        sequence.commit(3)
        sequence.finish()
    pin = cache.tree.pin([1, 2, 3], 60, 8)
    assert cache.stats()["protected_tokens"] == 3
    cache.check()
    del cache
    assert pin.release()


def test_wrong_times_and_clocks_are_refused():
    tree = RadixTree()
    for ttl_s in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInputError, match="ttl_s"):
            tree.pin([1], ttl_s, 1)
    with pytest.raises(InvalidInputError, match="budget"):
        tree.pin([1], 1.0, -1)
    with pytest.raises(InvalidInputError, match="callable"):
        RadixTree(clock=3)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_where_the_clock_fails_time_stands_still(clock):
    def broken():
        if clock.now > 5:
            raise OSError("no time")
        return clock.now

    tree = RadixTree(clock=broken)
    tree.insert([1], [1])
    tree.pin([1], 6, 1)
    clock.now = 5
    assert tree.pinned_tokens == 1
    clock.now = 100
    assert tree.pinned_tokens == 1
