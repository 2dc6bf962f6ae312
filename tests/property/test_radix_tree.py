"""The tree alone against the reference, step by step."""

from __future__ import annotations

import machines
import pytest
import radix_rs


class TreeAgainstReference(machines.RadixTreeMachine):
    """The package's tree is the system under test."""

    system = radix_rs


TestEveryStepAgreesWithTheReference = TreeAgainstReference.TestCase


def test_an_edge_split_by_a_lease_is_whole_again_when_the_lease_goes() -> None:
    tree = radix_rs.RadixTree()
    tree.insert(list(range(100)), list(range(100)))
    whole = tree.num_nodes
    lease = tree.lock_prefix(list(range(40)))
    assert tree.num_nodes == whole + 1
    assert tree.protected_tokens == 40
    lease.release()
    assert tree.num_nodes == whole
    assert len(tree.match_prefix(list(range(100))).segments) == 1


def test_an_edge_split_by_a_sibling_is_whole_again_when_the_sibling_goes() -> None:
    tree = radix_rs.RadixTree()
    tree.insert(list(range(100)), list(range(100)))
    whole = tree.num_nodes
    tree.insert([*range(40), 777], [*range(40), 100])
    assert tree.num_nodes == whole + 2
    tree.touch(list(range(100)))
    assert tree.evict(1).tolist() == [100]
    assert tree.num_nodes == whole


def test_a_split_does_not_refresh_the_half_that_was_not_matched() -> None:
    tree = radix_rs.RadixTree()
    tree.insert([1, 2, 3, 4], [0, 1, 2, 3])
    tree.insert([5, 6], [4, 5])
    tree.touch([1, 2])
    assert sorted(tree.evict(2).tolist()) == [2, 3]


def test_a_lease_pins_exactly_what_it_matched() -> None:
    tree = radix_rs.RadixTree()
    tree.insert([1, 2], [0, 1])
    lease = tree.lock_prefix([1])
    tree.insert([1, 3], [0, 3])
    assert tree.protected_tokens == 1
    lease.release()
    assert tree.protected_tokens == 0
    assert sorted(tree.evict(3).tolist()) == [0, 1, 3]


def test_a_handle_is_stale_after_its_page_went_and_never_names_another() -> None:
    tree = radix_rs.RadixTree()
    handle = tree.insert([1, 2], [0, 1]).handle
    tree.evict(2)
    tree.insert([1, 2], [5, 6])
    for use in (tree.slots, tree.lock, tree.parent, tree.node):
        with pytest.raises(radix_rs.errors.StaleHandleError):
            use(handle)


def test_a_reset_makes_every_handle_stale_and_keeps_what_is_leased() -> None:
    tree = radix_rs.RadixTree()
    tree.insert([1, 2, 3], [0, 1, 2])
    lease = tree.lock_prefix([1, 2])
    handle = lease.handle
    assert tree.reset().tolist() == [2]
    assert tree.match_prefix([1, 2]).length == 0
    with pytest.raises(radix_rs.errors.StaleHandleError):
        tree.slots(handle)
    assert lease.slots.tolist() == [0, 1]
    assert (tree.cached_tokens, tree.protected_tokens) == (2, 2)
    tree.insert([1, 2], [7, 8])
    lease.release()
    assert sorted(tree.evict(2).tolist()) == [0, 1]
    assert tree.match_prefix([1, 2]).slots.tolist() == [7, 8]


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_lengths_around_a_page_give_whole_pages_only(page_size: int) -> None:
    tree = radix_rs.RadixTree(page_size)
    total = 2 * page_size + 1
    tree.insert([7] * total, list(range(total)))
    for length in range(3 * page_size):
        expected = min(length // page_size, 2 + (page_size == 1)) * page_size
        assert tree.match_prefix([7] * length).length == expected
