"""Lists of prompts are single calls, and a snapshot is the tree, whatever came before."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from radix_rs import RadixTree

PAGE_SIZES = st.sampled_from([1, 4, 16])
# Pages of two kinds and a rest: mostly prefixes and twins of others.
PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 1), max_size=6), st.integers(0, 15), st.sampled_from("-ab")),
    max_size=12,
)


def _tokens(pages: list[int], rest: int, page_size: int) -> np.ndarray:
    tokens = np.repeat(np.array([7 + page for page in pages], np.int32), page_size)
    return np.concatenate([tokens, np.full(rest * page_size // 16, 7, np.int32)])


def _lists(prompts, page_size: int):
    tokens = [_tokens(pages, rest, page_size) for pages, rest, _ in prompts]
    spaces = [None if space == "-" else space for _, _, space in prompts]
    return tokens, spaces


def _grown(before, page_size: int) -> RadixTree:
    tree = RadixTree(page_size)
    for i, (tokens, space) in enumerate(zip(*_lists(before, page_size), strict=True)):
        tree.insert(tokens, np.arange(len(tokens)) + (1000 + i) * 1024, space)
    return tree


def _evicted(tree: RadixTree) -> list[list[int]]:
    steps = []
    while tree.cached_tokens:
        steps.append(tree.evict(1).tolist())
    return steps


@given(PAGE_SIZES, PROMPTS, PROMPTS)
def test_lists_are_single_calls(page_size, before, prompts):
    tokens, spaces = _lists(prompts, page_size)
    slots = [np.arange(len(prompt)) + i * 1024 for i, prompt in enumerate(tokens)]
    one, many = _grown(before, page_size), _grown(before, page_size)
    found = many.match_many(tokens, namespaces=spaces)
    singles = [many.match_prefix(*args) for args in zip(tokens, spaces, strict=True)]
    assert [f.slots.tolist() for f in found] == [s.slots.tolist() for s in singles]
    done = many.insert_many(tokens, slots, namespaces=spaces)
    single = [one.insert(*args) for args in zip(tokens, slots, spaces, strict=True)]
    assert [(d.cached_len, d.length) for d in done] == [(s.cached_len, s.length) for s in single]
    many.check()
    assert _evicted(many) == _evicted(one)


@given(PAGE_SIZES, PROMPTS, st.lists(st.floats(0, 100), min_size=12, max_size=12))
def test_the_order_is_a_permutation_in_which_sharing_prompts_stand_together(
    page_size, prompts, weights
):
    tokens, spaces = _lists(prompts, page_size)
    tree = RadixTree(page_size)
    order = tree.prefix_order(tokens, weights[: len(tokens)], namespaces=spaces).tolist()
    assert sorted(order) == list(range(len(tokens)))
    seen: list[tuple] = []
    for i in order:
        pages = tuple(tokens[i][: len(tokens[i]) // page_size * page_size : page_size].tolist())
        path = (spaces[i], *pages)
        # Once a branch was left it is not entered again.
        for depth in range(1, len(path) + 1):
            members = [at for at, other in enumerate(seen) if other[:depth] == path[:depth]]
            assert not members or members[-1] == len(seen) - 1
        seen.append(path)


@given(PAGE_SIZES, PROMPTS, PROMPTS)
def test_a_snapshot_is_the_tree(page_size, before, touched):
    tree = _grown(before, page_size)
    for tokens, space in zip(*_lists(touched, page_size), strict=True):
        tree.touch(tokens, space)
    with tempfile.TemporaryDirectory() as folder:
        tree.snapshot(Path(folder) / "tree")
        again = RadixTree(page_size)
        again.restore(Path(folder) / "tree")
    again.check()
    assert (again.cached_tokens, again.num_nodes) == (tree.cached_tokens, tree.num_nodes)
    assert _evicted(again) == _evicted(tree)
