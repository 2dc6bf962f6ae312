"""Calls with many prompts: single calls, in the caller's order, from whatever holds integers."""

from __future__ import annotations

import array

import numpy as np
import pytest
from radix_rs import RadixTree
from radix_rs.errors import InvalidInputError


def _tree() -> RadixTree:
    tree = RadixTree()
    tree.insert([1, 2, 3], [7, 8, 9])
    tree.insert([1, 2], [20, 21], "other")
    return tree


def test_matches_come_in_the_order_of_the_prompts():
    tree = _tree()
    prompts = [[1, 2, 5], [], [9], [1, 2, 3], [1, 2, 3]]
    found = tree.match_many(prompts)
    assert [one.length for one in found] == [2, 0, 0, 3, 3]
    assert found[0].slots.tolist() == [7, 8]
    assert found[3].handle == tree.match_prefix([1, 2, 3]).handle
    assert tree.match_many([]) == []


def test_a_prompt_may_be_anything_that_holds_integers():
    torch = pytest.importorskip("torch")
    prompts = [
        np.array([1, 2, 3], np.int64),
        np.arange(6, dtype=np.uint32)[1::2],
        array.array("i", [1, 2]),
        torch.tensor([1, 2, 3], dtype=torch.int32),
        range(1, 4),
        (1, 2, 4),
    ]
    tree = _tree()
    expected = [tree.match_prefix(prompt).length for prompt in prompts]
    assert [one.length for one in tree.match_many(iter(prompts))] == expected
    assert expected == [3, 1, 2, 3, 3, 2]


def test_rows_of_a_matrix_are_prompts():
    assert [one.length for one in _tree().match_many(np.array([[1, 2, 3], [1, 2, 9]]))] == [3, 2]


def test_one_namespace_for_all_or_one_for_each():
    tree = _tree()
    prompts = [[1, 2, 3], [1, 2, 3], [1, 2, 3]]
    lengths = [one.length for one in tree.match_many(prompts, namespaces=[None, "other", "none"])]
    assert lengths == [3, 2, 0]
    assert [one.length for one in tree.match_many(prompts, "other")] == [2, 2, 2]


def test_the_first_prompt_keeps_its_slots():
    tree = RadixTree(page_size=2)
    done = tree.insert_many(
        [[1, 2, 3, 4], [1, 2, 5, 6, 7], [1, 2]],
        [[0, 1, 2, 3], [4, 5, 6, 7, 8], [9, 9]],
    )
    assert [(one.cached_len, one.length) for one in done] == [(0, 4), (2, 4), (2, 2)]
    assert tree.match_prefix([1, 2, 5, 6]).slots.tolist() == [0, 1, 6, 7]
    assert tree.slots(done[1].handle).tolist() == [0, 1, 6, 7]
    tree.check()


@pytest.mark.parametrize(
    ("prompts", "slots", "prompt", "position"),
    [
        ([[1], [2, -5]], [[0], [1, 2]], 1, 1),
        ([[1], [2, "x"]], [[0], [1, 2]], 1, 1),
        ([[1], [2, 3]], [[0], [1, -2]], 1, 1),
        ([[1], [2], [3, 4]], [[0], [1], [2]], 2, None),
        ([[1], np.zeros((1, 1), int)], [[0], [1]], 1, None),
        ([[1], np.zeros(1)], [[0], [1]], 1, None),
    ],
)
def test_an_error_names_the_prompt_and_nothing_has_changed(prompts, slots, prompt, position):
    tree = RadixTree()
    with pytest.raises(InvalidInputError, match=f"^prompt {prompt}: ") as caught:
        tree.insert_many(prompts, slots)
    assert caught.value.prompt == prompt
    assert caught.value.position == position
    assert (tree.cached_tokens, tree.num_nodes) == (0, 2)


def test_slots_of_a_new_page_must_be_a_page():
    tree = RadixTree(page_size=2)
    with pytest.raises(InvalidInputError, match=r"^prompt 1: slot 5 ") as caught:
        tree.insert_many([[1, 2], [1, 2, 3, 4]], [[0, 1], [9, 9, 5, 6]])
    assert caught.value.prompt == 1
    assert tree.cached_tokens == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda tree: tree.match_many(5),
        lambda tree: tree.match_many("text"),
        lambda tree: tree.match_many([1, 2]),
        lambda tree: tree.match_many([[1]], "a", namespaces=["b"]),
        lambda tree: tree.match_many([[1]], namespaces=[]),
        lambda tree: tree.match_many([[1]], namespaces=[5]),
        lambda tree: tree.insert_many([[1]], []),
        lambda tree: tree.insert_many([[1]], 5),
        lambda tree: tree.prefix_order([[1]], [1.0, 2.0]),
        lambda tree: tree.prefix_order([[1]], [-1.0]),
        lambda tree: tree.prefix_order([[1]], [float("nan")]),
        lambda tree: tree.prefix_order([[1]], ["heavy"]),
    ],
)
def test_anything_else_is_a_typed_error(call):
    with pytest.raises(InvalidInputError):
        call(RadixTree())


def test_an_id_that_no_token_can_have_matches_nothing():
    assert [one.length for one in _tree().match_many([[1, 2, -3], [1, 2**40], [1, 2, 3]])] == [
        2,
        1,
        3,
    ]


class _Moves:
    """A token that moves the memory of a tensor while it is read."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __index__(self) -> int:
        self.tensor.resize_(1 << 16)
        return 1


def test_reading_one_prompt_may_move_another():
    torch = pytest.importorskip("torch")
    first = torch.tensor([1, 2, 3])
    lengths = [one.length for one in _tree().match_many([first, [_Moves(first), 2]])]
    assert lengths == [3, 2]


def test_an_interrupt_while_reading_is_passed_on():
    class Interrupts:
        def __index__(self) -> int:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _tree().match_many([[1], [Interrupts()]])


def test_prompts_that_share_stand_together_and_heavier_branches_first():
    prompts = [[5], [1, 2, 3], [9, 9], [1, 2], [9, 8], [1, 7]]
    order = RadixTree().prefix_order(prompts)
    assert order.dtype == np.int64
    assert order.tolist() == [3, 1, 5, 2, 4, 0]
    assert RadixTree().prefix_order(prompts, [0, 0, 1, 0, 5, 0]).tolist() == [4, 2, 0, 3, 1, 5]


def test_only_what_is_cached_counts_if_asked_for():
    tree = RadixTree()
    tree.insert([9], [0])
    prompts = [[1, 2], [9, 1], [1, 3], [9, 2]]
    assert tree.prefix_order(prompts).tolist() == [0, 2, 1, 3]
    assert tree.prefix_order(prompts, cached_only=True).tolist() == [0, 2, 1, 3]
    assert tree.prefix_order([[1], [9, 1], [1], [9, 2], [9]]).tolist() == [4, 1, 3, 0, 2]
    assert tree.prefix_order([[1], [9, 1], [1], [9]], cached_only=True).tolist() == [0, 2, 1, 3]


def test_whole_pages_are_what_is_shared():
    prompts = [[1, 2, 3], [4, 5, 6], [1, 2, 9]]
    assert RadixTree(page_size=2).prefix_order(prompts).tolist() == [0, 2, 1]
    assert RadixTree(page_size=4).prefix_order(prompts).tolist() == [0, 1, 2]
