"""Each order of eviction, on pages, through the bindings."""

import pytest
from radix_rs import PrefixCache, RadixTree, WeightedPolicy
from radix_rs.errors import InvalidInputError

# Slots are token ids, so what goes is told by its tokens.
A, B, C = [1, 2], [3, 4], [5, 6]


def filled(policy, **priorities):
    """A, B and C in this order; then B once, A twice."""
    tree = RadixTree(policy=policy)
    for name, tokens in (("A", A), ("B", B), ("C", C)):
        tree.insert(tokens, tokens, priority=priorities.get(name, 0))
    for tokens in (A, B, A):
        tree.touch(tokens)
    return tree


def order(tree):
    gone = []
    while tree.cached_tokens:
        gone += tree.evict(1).tolist()
    tree.check()
    return gone


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("lru", [6, 5, 4, 3, 2, 1]),
        ("lfu", [6, 5, 4, 3, 2, 1]),
        ("lfu-ageing", [6, 5, 4, 3, 2, 1]),
        ("fifo", [2, 1, 4, 3, 6, 5]),
        ("mru", [2, 1, 4, 3, 6, 5]),
        ("filo", [6, 5, 4, 3, 2, 1]),
        ("slru", [6, 5, 4, 3, 2, 1]),
        ("gdsf", [6, 5, 4, 3, 2, 1]),
    ],
)
def test_each_policy_has_its_order(policy, expected):
    assert order(filled(policy)) == expected


def test_lowest_priority_goes_first():
    assert order(filled("priority", A=-1, B=7, C=0)) == [2, 1, 6, 5, 4, 3]


def test_lfu_and_lru_part_where_an_old_page_was_used_often():
    for policy, first in (("lru", 2), ("lfu", 4)):
        tree = RadixTree(policy=policy)
        for tokens in (A, A, A, B):
            tree.insert(tokens, tokens)
        assert tree.evict(1).tolist() == [first]


def test_popularity_of_long_ago_fades_with_ageing_only():
    for policy, stays in (("lfu", True), ("lfu-ageing", False), ("gdsf", False)):
        tree = RadixTree(policy=policy)
        for _ in range(5):
            tree.insert(A, A)
        for token in range(100, 120):  # a new time: others come and go
            tree.insert([token], [token])
            tree.touch([token])
            tree.insert([token + 1000], [token + 1000])
            tree.evict(2)
        assert (tree.match_prefix(A).length > 0) == stays, policy


def test_a_use_that_ends_inside_an_edge_counts_for_its_pages_only():
    tree = RadixTree(policy="lfu")
    tree.insert([1, 2, 3, 4], [1, 2, 3, 4])
    tree.touch([1, 2])
    tree.insert([5], [5])
    tree.touch([5])
    assert tree.num_nodes == 4  # two roots, two leaves: nothing was split
    assert tree.evict(2).tolist() == [3, 4]
    assert order(tree) == [2, 1, 5]


def test_pages_of_one_request_are_as_old_as_the_request():
    cache = PrefixCache(16, policy="fifo")
    slow = cache.begin([1, 2])
    slow.reserve(1)
    slow.commit(1)
    quick = cache.begin([8])
    quick.reserve(1)
    quick.finish() if quick.commit(1) else None
    slow.reserve(1)
    slow.commit(2)
    slow.finish()
    cache.evict(2)
    assert cache.tree.match_prefix([8]).length == 1
    assert cache.tree.match_prefix([1, 2]).length == 0


def test_weights_make_a_policy():
    popular = WeightedPolicy("popular", last_use=1.0, hits=10.0)
    assert popular.name == "popular"
    assert "hits=10.0" in repr(popular)
    tree = RadixTree(policy=popular)
    for tokens in (A, A, A, B):
        tree.insert(tokens, tokens)
    assert tree.evict(2).tolist() == [3, 4]
    deep = RadixTree(policy=WeightedPolicy("shallow first", depth=1.0))
    deep.insert([1, 2, 3], [1, 2, 3])
    deep.insert([4], [4])
    assert deep.evict(1).tolist() == [4]


def test_wrong_policies_are_refused_with_the_names_that_are_known():
    with pytest.raises(InvalidInputError, match=r"'lru', 'lfu'.*'gdsf'"):
        RadixTree(policy="oracle")
    with pytest.raises(InvalidInputError, match="not int"):
        PrefixCache(8, policy=3)
    with pytest.raises(InvalidInputError, match="finite"):
        WeightedPolicy("x", hits=float("nan"))
