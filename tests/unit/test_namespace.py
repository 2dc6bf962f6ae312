"""Namespaces isolate, and different ones are different."""

from __future__ import annotations

import itertools

import pytest
from radix_rs import PrefixCache, RadixTree
from radix_rs.errors import InvalidInputError

DIFFERENT = [
    None,
    "",
    b"",
    (),
    "x",
    b"x",
    "adapter",
    ("adapter", "x"),
    (("adapter", "x"),),
    (("salt", "x"),),
    (("adapter", b"x"),),
    (("adapter", 1),),
    (("adapter", "1"),),
    (("adapter", -1),),
    (("adapter", "x"), ("salt", "y")),
    (("salt", "y"), ("adapter", "x")),
    (("adapter", "xsalt"), ("y", "")),
    (("adapter", "c"), ("salt", "ab")),
    (("adapter", "bc"), ("salt", "a")),
]


def test_different_namespaces_never_share():
    tree = RadixTree()
    for i, namespace in enumerate(DIFFERENT):
        done = tree.insert([1, 2], [2 * i, 2 * i + 1], namespace)
        assert done.cached_len == 0
    for i, namespace in enumerate(DIFFERENT):
        assert tree.match_prefix([1, 2], namespace).slots.tolist() == [2 * i, 2 * i + 1]
    tree.check()


@pytest.mark.parametrize("namespace", DIFFERENT, ids=repr)
def test_every_method_takes_it(namespace):
    tree = RadixTree()
    tree.insert([1, 2], [0, 1], namespace=namespace)
    tree.touch([1, 2], namespace=namespace)
    with tree.lock_prefix([1, 2, 3], namespace=namespace) as lease:
        assert lease.length == 2
    cache = PrefixCache(8)
    for expected in (0, 2):
        with cache.begin([1, 2, 3], namespace) as sequence:
            assert sequence.cached_len == expected
            sequence.reserve(3 - expected)
            sequence.commit(3)
            sequence.finish()


@pytest.mark.parametrize(
    "wrong",
    [
        1,
        1.5,
        ["a"],
        {"adapter": "x"},
        ("a",),
        ("a", "b", "c"),
        (("a", True),),
        (("a", 1.5),),
        (("a", None),),
        ((("a", "b"), "c"),),
        "\ud800",
        (("a", 2**200),),
    ],
    ids=ascii,
)
def test_anything_else_is_a_typed_error(wrong):
    tree, cache = RadixTree(), PrefixCache(8)
    for call in (tree.match_prefix, tree.lock_prefix, tree.touch, cache.begin):
        with pytest.raises(InvalidInputError, match="namespace"):
            call([1], wrong)
    with pytest.raises(InvalidInputError, match="namespace"):
        tree.insert([1], [0], wrong)


def test_pairs_are_told_apart_whatever_they_are():
    parts = ["", "a", "ab", "b", b"a", 1, 97]
    spaces = [((kind, value),) for kind, value in itertools.product(parts, parts)]
    tree = RadixTree()
    for i, namespace in enumerate(spaces):
        assert tree.insert([1], [i], namespace).cached_len == 0
