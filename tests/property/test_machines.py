"""The state machines themselves: they pass on the reference and find planted bugs.

A machine that cannot fail proves nothing. Each bug here is one that real prefix caches had.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import machines
import numpy as np
import pytest
import reference
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from radix_rs.errors import CapacityError

BASE = {"RadixTree", "SlotPool", "PrefixCache"}


def run(machine: type[machines.Machine], examples: int, **replaced: Any) -> None:
    """Run a machine against the reference with some of its classes replaced."""
    names = {name: replaced.get(name, getattr(reference, name)) for name in BASE}
    tried = type("Tried", (machine,), {"system": SimpleNamespace(**names)})
    # Finding is enough: no time is spent on making the example small.
    phases = (Phase.generate,)
    budget = settings(
        max_examples=examples, derandomize=True, database=None, phases=phases, deadline=None
    )
    run_state_machine_as_test(tried, settings=budget)


class CacheOf(reference.PrefixCache):
    """A cache whose sequences or tree are of another class."""

    sequence: type[reference.Sequence] = reference.Sequence
    tree_class: type[reference.RadixTree] = reference.RadixTree

    def __init__(self, num_slots: int, page_size: int = 1, **options: Any) -> None:
        super().__init__(num_slots, page_size, **options)
        self.tree = self.tree_class(page_size)

    def begin(self, *arguments: Any, **options: Any) -> reference.Sequence:
        begun = super().begin(*arguments, **options)
        begun.__class__ = self.sequence
        return begun


class PublishesBeforeComputing(reference.Sequence):
    """Publishes every known token, computed or not."""

    def _publish(self, after: reference.Fence | None = None) -> tuple[int, int]:
        computed, self.num_computed = self.num_computed, self.num_reserved
        try:
            return super()._publish(after)
        finally:
            self.num_computed = computed


class KeepsItsDuplicates(reference.Sequence):
    """Forgets to repoint: the range it returns claims that nothing changed."""

    def _publish(self, after: reference.Fence | None = None) -> tuple[int, int]:
        super()._publish(after)
        return self.num_published, self.num_published


class LeaksOnTruncate(reference.Sequence):
    """Gives back one page too few when it rolls back over own pages."""

    def truncate(self, num_tokens: int, after: reference.Fence | None = None) -> None:
        before = len(self._own)
        super().truncate(num_tokens, after)
        if before > len(self._own):
            self._cache.pool._take(1)


class ForkSharesTheCutPage(reference.Sequence):
    """Copies one token too few out of the page that is cut."""

    def fork(self, count: int = 1, at: int | None = None, **options: Any) -> Any:
        children = super().fork(count, at, **options)
        for child in children:
            child.copies = child.copies[:-1]
        return children


class TouchesTooMuch(reference.RadixTree):
    """Stamps the unmatched rest of a path too, as a split that copies its stamp does."""

    def touch(self, tokens: Any, namespace: Any = None) -> None:
        path = self._walk(tokens, namespace)
        for page in path[-1:]:
            path += [below for below in self._pages if page in below.path()[:-1]]
        self._stamp(path)


class OverMatches(reference.RadixTree):
    """Takes a page for equal when all but its last token are."""

    def match_prefix(self, tokens: Any, namespace: Any = None) -> reference.Match:
        match = super().match_prefix(tokens, namespace)
        page = match._pages[-1] if match._pages else match._root
        rest = self._split_pages(list(tokens)[match.length :])
        for key, child in page.children.items():
            if rest and self.page_size > 1 and key[:-1] == rest[0][:-1]:
                return reference.Match(self, match._root, [*match._pages, child])
        return match


class MixesNamespaces(reference.RadixTree):
    """Takes namespaces for equal whose values are, whatever their kinds and types."""

    def _root(self, namespace: Any) -> reference.Page:
        if isinstance(namespace, tuple):
            return super()._root("".join(str(value) for _, value in namespace))
        text = namespace.decode() if isinstance(namespace, bytes) else namespace
        return super()._root(text or "")


class EvictsTheNewest(reference.RadixTree):
    """Has the order the wrong way round."""

    def _victims(self) -> list[reference.Page]:
        leaves = [page for page in self._pages if not page.pins and not page.children]
        return sorted(leaves, key=lambda page: (not page.old, -page.stamp))[:1]


class TakesTheWholeNeed(CacheOf):
    """Evicts the whole need instead of the shortfall."""

    def _find(self, num_pages: int, chosen: Any = None) -> list[list[int]]:
        size = self.page_size
        if num_pages * size > self.pool.num_free + self.tree.evictable_tokens:
            return super()._find(num_pages, chosen)
        for page in self.tree._evict_pages(num_pages):
            self.pool.free(page.slots)
        return super()._find(num_pages, chosen)


class ForgetsTheFence(CacheOf):
    """Gives back at once what should wait."""

    def _give_back(self, slots: list[int], after: reference.Fence | None) -> None:
        super()._give_back(slots, None)


class FreesTwiceSilently(reference.SlotPool):
    """Accepts a slot that is free already."""

    def free(self, slots: Any) -> None:
        given = [int(slot) for slot in slots]
        pages = {slot // self.page_size for slot in given}
        if given and pages <= self._free and len(given) == len(pages) * self.page_size:
            return
        super().free(given)


class ChangesBeforeItFails(reference.SlotPool):
    """Takes what there is before it says that it is too little."""

    def alloc(self, num_tokens: int, **options: Any) -> Any:
        try:
            return super().alloc(num_tokens, **options)
        except CapacityError:
            self._free.clear()
            raise


def with_sequence(kind: type[reference.Sequence]) -> type[CacheOf]:
    return type("Planted", (CacheOf,), {"sequence": kind})


def with_tree(kind: type[reference.RadixTree]) -> type[CacheOf]:
    return type("Planted", (CacheOf,), {"tree_class": kind})


@pytest.mark.parametrize(
    "machine",
    [machines.PrefixCacheMachine, machines.RadixTreeMachine, machines.SlotPoolMachine],
)
def test_the_reference_agrees_with_itself(machine: type[machines.Machine]) -> None:
    run(machine, 20)


@pytest.mark.parametrize(
    "planted",
    [
        with_sequence(PublishesBeforeComputing),
        with_sequence(KeepsItsDuplicates),
        with_sequence(LeaksOnTruncate),
        with_sequence(ForkSharesTheCutPage),
        with_tree(EvictsTheNewest),
        TakesTheWholeNeed,
        ForgetsTheFence,
    ],
    ids=lambda planted: (
        getattr(planted, "sequence", planted).__name__
        + "-"
        + getattr(planted, "tree_class", planted).__name__
    ),
)
def test_a_bug_planted_in_the_cache_is_found(planted: type[CacheOf]) -> None:
    with pytest.raises((AssertionError, LookupError, reference.IntegrityError)):
        run(machines.PrefixCacheMachine, 1500, PrefixCache=planted)


@pytest.mark.parametrize("planted", [TouchesTooMuch, OverMatches, MixesNamespaces, EvictsTheNewest])
def test_a_bug_planted_in_the_tree_is_found(planted: type[reference.RadixTree]) -> None:
    with pytest.raises((AssertionError, LookupError, reference.IntegrityError)):
        run(machines.RadixTreeMachine, 1500, RadixTree=planted)


@pytest.mark.parametrize("planted", [FreesTwiceSilently, ChangesBeforeItFails])
def test_a_bug_planted_in_the_pool_is_found(planted: type[reference.SlotPool]) -> None:
    with pytest.raises(AssertionError):
        run(machines.SlotPoolMachine, 1500, SlotPool=planted)


def test_a_choice_that_the_contract_forbids_is_refused() -> None:
    pool = reference.SlotPool(16, 4)
    pool.alloc(4, chosen=range(4, 8))
    with pytest.raises(reference.DisallowedChoice):
        pool.alloc(4, chosen=range(4, 8))
    with pytest.raises(reference.DisallowedChoice):
        pool.alloc(4, chosen=[8, 10, 9, 11])
    tree = reference.RadixTree()
    tree.insert([1, 2], [0, 1])
    tree.insert([3, 4], [2, 3])
    with pytest.raises(reference.DisallowedChoice):
        tree.evict(1, whole_leaves=True, hint=[3, 2])
    assert np.array_equal(tree.evict(1, whole_leaves=True, hint=[0, 1]), [0, 1])
