"""A plain, slow and obviously right reference of the cache.

The cache is written here as a trie whose edges are single pages. A page knows its slots, how many
leases cover it (``pins``) and when it was last used (``stamp``); everything observable follows
from that. There are no splits, no merges and no cleverness: eviction looks at every page, each
time.

Names and exceptions are those of :mod:`radix_rs`. The only additions are keyword arguments called
``chosen`` and ``hint``: they bind the reference to decisions of the system under test that the
contract leaves open (which free pages are handed out, which of the pages left over from before
a reset goes first), after checking that the decision was an allowed one.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Hashable, Iterable
from collections.abc import Sequence as AbstractSequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from radix_rs.errors import (
    CapacityError,
    DoubleFreeError,
    IntegrityError,
    InvalidInputError,
    LeaseError,
    StaleHandleError,
)

Slots = NDArray[np.int32]
Tokens = AbstractSequence[int]
ATOM_LIMITS = {"u32": 2**31, "u64": 2**63}


class DisallowedChoice(AssertionError):
    """The system under test chose something that the contract does not allow."""


def _array(slots: Iterable[int]) -> Slots:
    return np.array(list(slots), dtype=np.int32)


def _page_size(page_size: int) -> int:
    if not 1 <= page_size <= 1024 or page_size & (page_size - 1):
        raise InvalidInputError(f"page_size must be a power of two up to 1024, not {page_size}")
    return page_size


def _checked(tokens: Tokens, limit: int) -> list[int]:
    """Return the tokens as ints, or raise for the first one that is no token id."""
    checked = [int(token) for token in tokens]
    for position, token in enumerate(checked):
        if not 0 <= token < limit:
            raise InvalidInputError(
                f"token id {token} at position {position} is out of range", position, token
            )
    return checked


def _namespace(namespace: Any) -> Hashable:
    """Return a key that is equal for equal namespaces only, types included."""
    if isinstance(namespace, tuple):
        return ("tuple", tuple(tuple((type(p).__name__, p) for p in part) for part in namespace))
    return (type(namespace).__name__, namespace)


class Page:
    """One page of the trie."""

    def __init__(
        self, tokens: tuple[int, ...], slots: tuple[int, ...], parent: Page | None
    ) -> None:
        self.tokens = tokens
        self.slots = slots
        self.parent = parent
        self.children: dict[tuple[int, ...], Page] = {}
        self.pins = 0
        self.stamp = 0
        self.gone = False  # evicted
        self.old = parent is not None and parent.old  # from before a reset

    def path(self) -> list[Page]:
        """Return the pages from the first one down to this one."""
        pages: list[Page] = []
        page: Page | None = self
        while page is not None and page.parent is not None:
            pages.append(page)
            page = page.parent
        return pages[::-1]


class Handle:
    """Names the end of a path; using it after the page is gone is an error."""

    def __init__(self, tree: RadixTree, page: Page) -> None:
        self._tree = tree
        self._page = page
        self.end_depth = len(page.path()) * tree.page_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self._page is other._page

    def __hash__(self) -> int:
        return id(self._page)


class Match:
    """What a match found: whole pages only, and only a hint."""

    def __init__(self, tree: RadixTree, root: Page, pages: list[Page]) -> None:
        self._tree = tree
        self._root = root
        self._pages = pages
        self._slots = _array(slot for page in pages for slot in page.slots)

    @property
    def length(self) -> int:
        """Matched tokens."""
        return len(self._slots)

    @property
    def slots(self) -> Slots:
        """One slot per matched token."""
        return self._slots

    @property
    def segments(self) -> tuple[Slots, ...]:
        """The slots in one piece here: the reference has no edges."""
        return (self._slots,) if len(self._slots) else ()

    @property
    def handle(self) -> Handle:
        """The end of the match."""
        return Handle(self._tree, self._pages[-1] if self._pages else self._root)

    def write_slots(self, out: Slots, start: int = 0) -> int:
        """Write the slots from position ``start`` on to the front of ``out``; return how many."""
        count = min(len(out), max(0, len(self._slots) - start))
        out[:count] = self._slots[start : start + count]
        return count


class Lease:
    """Protects its pages until it is released."""

    def __init__(self, tree: RadixTree, namespace: Any, pages: list[Page]) -> None:
        self._tree = tree
        self._namespace = namespace
        self._pages = pages
        self._released = False
        for page in pages:
            page.pins += 1

    def _push(self, page: Page) -> None:
        page.pins += 1
        self._pages.append(page)

    def _shrink(self, num_pages: int) -> None:
        for page in self._pages[num_pages:]:
            page.pins -= 1
        del self._pages[num_pages:]

    @property
    def length(self) -> int:
        """Protected tokens."""
        return len(self._pages) * self._tree.page_size

    @property
    def slots(self) -> Slots:
        """One slot per protected token."""
        return _array(slot for page in self._pages for slot in page.slots)

    @property
    def segments(self) -> tuple[Slots, ...]:
        """The slots in one piece."""
        return (self.slots,) if self._pages else ()

    @property
    def handle(self) -> Handle:
        """The end of the lease."""
        root = self._tree._root(self._namespace)
        return Handle(self._tree, self._pages[-1] if self._pages else root)

    def write_slots(self, out: Slots, start: int = 0) -> int:
        """Write the slots from position ``start`` on to the front of ``out``; return how many."""
        slots = self.slots[start:]
        count = min(len(out), len(slots))
        out[:count] = slots[:count]
        return count

    def release(self) -> None:
        """Stop protecting; releasing twice is harmless."""
        if not self._released:
            self._released = True
            for page in self._pages:
                page.pins -= 1

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


class InsertResult:
    """What an insert did."""

    def __init__(self, cached_len: int, length: int, handle: Handle) -> None:
        self.cached_len = cached_len
        self.length = length
        self.handle = handle


class RadixTree:
    """The trie of pages, for engines that own their slots."""

    def __init__(
        self, page_size: int = 1, policy: str = "lru", *, atom: str = "u32", **_: Any
    ) -> None:
        self.page_size = _page_size(page_size)
        self._limit = ATOM_LIMITS[atom]
        self._roots: dict[Hashable, Page] = {}
        self._pages: list[Page] = []  # every cached page, in order of birth
        self._time = 0
        self.inserted_tokens = 0
        self.evicted_tokens = 0

    # -- the trie

    def _root(self, namespace: Any) -> Page:
        return self._roots.setdefault(_namespace(namespace), Page((), (), None))

    def _split_pages(self, tokens: Tokens) -> list[tuple[int, ...]]:
        size = self.page_size
        return [
            tuple(int(t) for t in tokens[i * size : (i + 1) * size])
            for i in range(len(tokens) // size)
        ]

    def _walk(self, tokens: Tokens, namespace: Any) -> list[Page]:
        page, path = self._root(namespace), []
        for key in self._split_pages(tokens):
            if key not in page.children:
                break
            page = page.children[key]
            path.append(page)
        return path

    def _stamp(self, path: list[Page]) -> None:
        self._time += 1
        for page in path:
            page.stamp = self._time

    def _add(self, parent: Page, key: tuple[int, ...], slots: Iterable[int]) -> Page:
        page = Page(key, tuple(int(slot) for slot in slots), parent)
        parent.children[key] = page
        self._pages.append(page)
        self.inserted_tokens += self.page_size
        return page

    def _remove(self, page: Page) -> None:
        assert not page.pins
        assert not page.children
        assert page.parent is not None
        page.gone = True
        self._pages.remove(page)
        if page.parent.children.get(page.tokens) is page:
            del page.parent.children[page.tokens]
        self.evicted_tokens += self.page_size

    def _victims(self) -> list[Page]:
        """Return the pages that may go now and that the order puts first.

        More than one only for pages from before a reset: the contract leaves their order open.
        """
        leaves = [page for page in self._pages if not page.pins and not page.children]
        left_over = [page for page in leaves if page.old]
        if left_over:
            return left_over
        return [min(leaves, key=lambda page: page.stamp)] if leaves else []

    def _evict_pages(self, num_pages: int, hint: Iterable[int] | None = None) -> list[Page]:
        hinted = None if hint is None else {int(slot) for slot in hint}
        evicted: list[Page] = []
        while len(evicted) < num_pages:
            victims = self._victims()
            if not victims:
                break
            preferred = [p for p in victims if hinted is None or hinted.issuperset(p.slots)]
            page = (preferred or victims)[0]
            self._remove(page)
            evicted.append(page)
        return evicted

    # -- the API

    def match_prefix(self, tokens: Tokens, namespace: Any = None) -> Match:
        """Return the longest cached prefix in whole pages; change nothing."""
        return Match(self, self._root(namespace), self._walk(tokens, namespace))

    def lock_prefix(self, tokens: Tokens, namespace: Any = None, *, tenant: Any = None) -> Lease:
        """Protect and stamp the longest cached prefix."""
        path = self._walk(tokens, namespace)
        self._stamp(path)
        return Lease(self, namespace, path)

    def touch(self, tokens: Tokens, namespace: Any = None) -> None:
        """Stamp the longest cached prefix."""
        self._stamp(self._walk(tokens, namespace))

    def insert(
        self,
        tokens: Tokens,
        slots: Iterable[int],
        namespace: Any = None,
        *,
        lease: Lease | None = None,
        tenant: Any = None,
        priority: int = 0,
    ) -> InsertResult:
        """Cache the whole pages of ``tokens`` with their slots, where they are not cached yet."""
        size = self.page_size
        tokens = _checked(tokens, self._limit)
        given = [int(slot) for slot in slots]
        if len(tokens) != len(given):
            raise InvalidInputError(f"{len(tokens)} tokens but {len(given)} slots")
        for position, slot in enumerate(given):
            if slot < 0:
                raise InvalidInputError(f"slot {slot} is negative", position, slot)
        keys = self._split_pages(tokens)
        path: list[Page] = []
        if lease is not None:
            if lease._tree is not self or lease._released:
                raise LeaseError("the lease is released or belongs to another tree")
            if [page.tokens for page in lease._pages] != keys[: len(lease._pages)]:
                raise LeaseError("the lease does not cover a leading part of these tokens")
            namespace = lease._namespace
            path = list(lease._pages)
        page = path[-1] if path else self._root(namespace)
        while len(path) < len(keys) and keys[len(path)] in page.children:
            page = page.children[keys[len(path)]]
            path.append(page)
        cached_len = len(path) * size
        for i in range(len(path), len(keys)):
            first = given[i * size]
            if first % size or given[i * size : (i + 1) * size] != list(range(first, first + size)):
                raise InvalidInputError(f"the slots of page {i} are not a page", i * size, first)
        for i in range(len(path), len(keys)):
            page = self._add(page, keys[i], given[i * size : (i + 1) * size])
            path.append(page)
        if lease is not None:
            for grown in path[len(lease._pages) :]:
                lease._push(grown)
        self._stamp(path)
        return InsertResult(cached_len, len(keys) * size, Handle(self, page))

    def evict(
        self, num_tokens: int, *, whole_leaves: bool = False, hint: Iterable[int] | None = None
    ) -> Slots:
        """Free at least ``num_tokens``, rounded up to pages, least recently used first.

        With ``whole_leaves`` the system under test may go on to the end of its victim's edge;
        ``hint`` must then hold what it evicted, and is checked.
        """
        num_pages = -(-num_tokens // self.page_size)
        if whole_leaves and hint is not None:
            return self._evict_whole(num_pages, hint)
        pages = self._evict_pages(num_pages, hint)
        return _array(slot for page in pages for slot in page.slots)

    def _evict_whole(self, num_pages: int, hint: Iterable[int]) -> Slots:
        wanted = {int(slot) for slot in hint}
        chosen = [page for page in self._pages if wanted.issuperset(page.slots)]
        if len(wanted) != len(chosen) * self.page_size:
            raise DisallowedChoice(f"evicted slots that are no cached pages: {sorted(wanted)}")
        if not self._explains(num_pages, chosen, []):
            raise DisallowedChoice(f"no order of whole leaves explains {sorted(wanted)}")
        for page in sorted(chosen, key=lambda page: -len(page.path())):
            self._remove(page)
        return _array(sorted(wanted))

    def _explains(self, num_pages: int, chosen: list[Page], taken: list[Page]) -> bool:
        """Tell whether taking edges from leaves in order, until enough, can give ``chosen``."""

        def bare(page: Page) -> bool:
            return not page.pins and all(child in taken for child in page.children.values())

        leaves = [page for page in self._pages if page not in taken and bare(page)]
        if len(taken) >= num_pages or not leaves:
            return len(taken) == len(chosen)
        first = [p for p in leaves if p.old] or [min(leaves, key=lambda page: page.stamp)]
        for leaf in first:
            page: Page | None = leaf
            edge: list[Page] = []
            # Where the edge begins depends on history: every beginning is tried.
            while page is not None and page in chosen and page not in taken:
                if not all(c in taken or c in edge for c in page.children.values()):
                    break
                edge.append(page)
                if self._explains(num_pages, chosen, taken + edge):
                    return True
                page = page.parent
        return False

    def _live(self, handle: Handle) -> Page:
        page = handle._page
        if handle._tree is not self or page.gone or page.old:
            raise StaleHandleError("the handle's node is gone")
        return page

    def lock(self, handle: Handle) -> Lease:
        """Protect and stamp the path of a handle."""
        path = self._live(handle).path()
        self._stamp(path)
        return Lease(self, None, path)

    def slots(self, handle: Handle) -> Slots:
        """Return the slots of the path of a handle."""
        return _array(slot for page in self._live(handle).path() for slot in page.slots)

    def parent(self, handle: Handle) -> Handle | None:
        """Return the handle of the page above, or None at the root."""
        parent = self._live(handle).parent
        return None if parent is None else Handle(self, parent)

    def reset(self) -> Slots:
        """Forget everything; return the slots that no lease held."""
        for root in self._roots.values():
            root.old = True
        self._roots = {}
        freed = [page for page in self._pages if not page.pins]
        self._pages = [page for page in self._pages if page.pins]
        for page in freed:
            page.gone = True
            if page.parent is not None:
                del page.parent.children[page.tokens]
        for page in self._pages:
            page.old = True
        return _array(slot for page in freed for slot in page.slots)

    def check(self) -> None:
        """Raise IntegrityError where an invariant is broken."""
        seen: set[int] = set()
        for page in self._pages:
            if page.pins < 0 or page.gone:
                raise IntegrityError("a cached page is gone or has negative pins")
            if seen.intersection(page.slots):
                raise IntegrityError("a slot is cached twice")
            seen.update(page.slots)
            if any(child.pins > page.pins for child in page.children.values()):
                # A lease covers whole paths, so no page has more leases than the page above.
                raise IntegrityError("a page has more pins than its parent")

    def stats(self) -> dict[str, int]:
        """Return the counters."""
        return {
            "cached_tokens": self.cached_tokens,
            "evictable_tokens": self.evictable_tokens,
            "protected_tokens": self.protected_tokens,
            "num_nodes": self.num_nodes,
            "inserted_tokens": self.inserted_tokens,
            "evicted_tokens": self.evicted_tokens,
        }

    @property
    def cached_tokens(self) -> int:
        """Tokens in the tree."""
        return len(self._pages) * self.page_size

    @property
    def protected_tokens(self) -> int:
        """Cached tokens that a lease covers."""
        return sum(self.page_size for page in self._pages if page.pins)

    @property
    def evictable_tokens(self) -> int:
        """Cached tokens that no lease covers."""
        return self.cached_tokens - self.protected_tokens

    @property
    def num_nodes(self) -> int:
        """Pages; the number of real nodes depends on structure and is not comparable."""
        return len(self._pages)

    @property
    def size_bytes(self) -> int:
        """Not comparable either."""
        return 8 * self.cached_tokens


class SlotPool:
    """The free slots, in whole pages."""

    def __init__(self, num_slots: int, page_size: int = 1) -> None:
        self.page_size = _page_size(page_size)
        if num_slots <= 0 or num_slots % page_size:
            raise InvalidInputError(f"num_slots {num_slots} is no multiple of {page_size}")
        self.num_slots = num_slots
        self._free = set(range(num_slots // page_size))

    @property
    def num_free(self) -> int:
        """Free slots."""
        return len(self._free) * self.page_size

    def _page_slots(self, page: int) -> list[int]:
        return list(range(page * self.page_size, (page + 1) * self.page_size))

    def _take(self, num_pages: int, chosen: list[int] | None = None) -> list[list[int]]:
        """Take the lowest free pages, or the ``chosen`` ones if they are free."""
        pages = sorted(self._free)[:num_pages] if chosen is None else chosen
        if len(pages) != num_pages or not self._free.issuperset(pages):
            raise DisallowedChoice(f"pages {pages} are not {num_pages} free pages")
        if len(set(pages)) != len(pages):
            raise DisallowedChoice(f"a page is handed out twice: {pages}")
        self._free.difference_update(pages)
        return [self._page_slots(page) for page in pages]

    def alloc(self, num_tokens: int, *, chosen: Iterable[int] | None = None) -> Slots:
        """Hand out whole pages for ``num_tokens``: the lowest free ones, or ``chosen`` slots."""
        num_pages = -(-num_tokens // self.page_size)
        if num_pages > len(self._free):
            raise CapacityError(num_pages * self.page_size, self.num_free)
        if chosen is None:
            pages = self._take(num_pages)
        else:
            slots = [int(slot) for slot in chosen]
            heads = [slot // self.page_size for slot in slots[:: self.page_size]]
            pages = self._take(num_pages, heads)
            if slots != [slot for page in pages for slot in page]:
                raise DisallowedChoice(f"{slots} are not whole pages")
        return _array(slot for page in pages for slot in page)

    def alloc_into(self, out: Slots) -> None:
        """Fill ``out`` (whole pages) with slots."""
        if len(out) % self.page_size:
            raise InvalidInputError("out is no whole number of pages")
        out[:] = self.alloc(len(out))

    def free(self, slots: Iterable[int]) -> None:
        """Take whole pages back."""
        given = [int(slot) for slot in slots]
        size = self.page_size
        if len(given) % size:
            raise InvalidInputError("slots are no whole number of pages")
        for i, slot in enumerate(given):
            if not 0 <= slot < self.num_slots:
                raise InvalidInputError(f"slot {slot} is not of this pool", i, slot)
        pages = [slot // size for slot in given[::size]]
        if given != [slot for page in pages for slot in self._page_slots(page)]:
            raise InvalidInputError("slots are no whole pages")
        for i, page in enumerate(pages):
            if page in self._free or page in pages[:i]:
                raise DoubleFreeError(page * size)
        self._free.update(pages)

    def check(self) -> None:
        """Raise IntegrityError where an invariant is broken."""
        if not self._free.issubset(range(self.num_slots // self.page_size)):
            raise IntegrityError("a free page is not of this pool")


class Fence:
    """Slots given back after a fence wait until it is signalled."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._slots: list[int] = []
        self._signalled = False

    def _signal(self) -> None:
        if not self._signalled:
            self._signalled = True
            self._cache._waiting -= len(self._slots)
            self._cache.pool.free(self._slots)

    def __del__(self) -> None:
        self._signal()


class Sequence:
    """The tokens of one request, its lease and its own slots."""

    def __init__(
        self,
        cache: PrefixCache,
        namespace: Any,
        tokens: list[int],
        lease: Lease,
        out: Slots | None = None,
    ) -> None:
        self._cache = cache
        self._namespace = namespace
        self._tokens = tokens
        self._lease = lease
        self._own: list[list[int]] = []  # whole pages, after the lease's
        self._out = out
        self._done = False
        self.cached_len = self.num_computed = self.num_reserved = lease.length
        self.copies: Slots = np.zeros((0, 2), dtype=np.int32)
        self._write_out()

    # -- plain numbers

    @property
    def num_tokens(self) -> int:
        """Known tokens."""
        return len(self._tokens)

    @property
    def num_published(self) -> int:
        """Tokens of the row that the tree owns."""
        return self._lease.length

    def _row(self) -> list[int]:
        """Return every slot up to the end of the last page."""
        row = [slot for page in self._lease._pages for slot in page.slots]
        return row + [slot for page in self._own for slot in page]

    @property
    def slots(self) -> Slots:
        """One slot per reserved token."""
        return _array(self._row()[: self.num_reserved])

    @property
    def page_table(self) -> Slots:
        """The page of the pool of each page of the row."""
        size = self._cache.page_size
        return _array(slot // size for slot in self._row()[: self.num_reserved : size])

    @property
    def held_tokens(self) -> int:
        """Own slots, in whole pages."""
        return len(self._own) * self._cache.page_size

    # -- the life of a request

    def _alive(self) -> None:
        if self._done:
            raise LeaseError("sequence is finished")

    def _write_out(self) -> None:
        if self._out is not None:
            self._out[: self.num_reserved] = self.slots

    def reserve(self, num_tokens: int, *, chosen: Iterable[int] | None = None) -> Slots:
        """Find slots for ``num_tokens`` more tokens; ``chosen`` are pages of the pool."""
        self._alive()
        end = self.num_reserved + num_tokens
        if self._out is not None and end > len(self._out):
            raise InvalidInputError(f"the row has {len(self._out)} places, {end} are needed")
        have = len(self._lease._pages) + len(self._own)
        num_pages = -(-end // self._cache.page_size) - have
        if num_pages > 0:
            self._own += self._cache._find(num_pages, chosen)
        start, self.num_reserved = self.num_reserved, end
        self._write_out()
        return self.slots[start:]

    def append(self, tokens: Tokens) -> None:
        """Record tokens."""
        self._alive()
        self._tokens += _checked(tokens, self._cache.tree._limit)

    def commit(self, num_computed: int, after: Fence | None = None) -> tuple[int, int]:
        """K and V exist up to here: publish whole pages; return the range that changed."""
        self._alive()
        if not 0 <= num_computed <= self.num_reserved:
            raise InvalidInputError(f"{num_computed} computed, {self.num_reserved} reserved")
        self.num_computed = max(self.num_computed, num_computed)
        return self._publish(after)

    def _publish(self, after: Fence | None = None) -> tuple[int, int]:
        tree, lease, size = self._cache.tree, self._lease, self._cache.page_size
        keys = tree._split_pages(self._tokens[: self.num_computed])
        first = len(lease._pages)
        changed: list[int] = []
        duplicates: list[int] = []
        if self._cache.enabled and len(keys) > first:
            page = lease._pages[-1] if lease._pages else tree._root(self._namespace)
            for i, key in enumerate(keys[first:], start=first):
                own = self._own.pop(0)
                child = page.children.get(key)
                if child is None:
                    child = tree._add(page, key, own)
                else:
                    changed.append(i)
                    duplicates += own
                lease._push(child)
                page = child
            tree._stamp(lease._pages)
            self._cache._give_back(duplicates, after)
            self._write_out()
        if not changed:
            return lease.length, lease.length
        return changed[0] * size, (changed[-1] + 1) * size

    def truncate(self, num_tokens: int, after: Fence | None = None) -> None:
        """Forget everything at and beyond ``num_tokens``."""
        self._alive()
        size = self._cache.page_size
        if not 0 <= num_tokens <= max(self.num_tokens, self.num_reserved):
            raise InvalidInputError(f"cannot truncate {self.num_tokens} tokens to {num_tokens}")
        keep = num_tokens
        if num_tokens < self._lease.length:
            # The page that is cut belongs to the tree: its slots cannot be written again.
            keep = num_tokens // size * size
            self._lease._shrink(num_tokens // size)
        del self._tokens[num_tokens:]
        self.num_computed = min(self.num_computed, keep)
        self.num_reserved = min(self.num_reserved, keep)
        self.cached_len = min(self.cached_len, self._lease.length)
        left = max(0, -(-keep // size) - len(self._lease._pages))
        gone, self._own = self._own[left:], self._own[:left]
        self._cache._give_back([slot for page in gone for slot in page], after)

    def fork(
        self,
        count: int = 1,
        at: int | None = None,
        *,
        chosen: list[list[int]] | None = None,
    ) -> list[Sequence]:
        """Share everything before ``at`` with ``count`` children; a cut page is copied."""
        self._alive()
        size = self._cache.page_size
        at = self.num_tokens if at is None else at
        if not 0 <= at <= self.num_tokens or count < 0:
            raise InvalidInputError(f"cannot fork {count} at {at} of {self.num_tokens} tokens")
        self._publish()
        shared = self._lease._pages[: min(at, self._lease.length) // size]
        computed = min(at, max(len(shared) * size, self.num_computed))
        num_pages = -(-computed // size) - len(shared)
        # The parent's lease protects the shared path while slots are being found.
        flat = None if chosen is None else [page for pages in chosen for page in pages]
        found = self._cache._find(num_pages * count, flat)
        children = []
        for i in range(count):
            self._cache.tree._stamp(shared)
            lease = Lease(self._cache.tree, self._namespace, list(shared))
            child = Sequence(self._cache, self._namespace, self._tokens[:at], lease)
            child._own = found[i * num_pages : (i + 1) * num_pages]
            child.num_computed = child.num_reserved = computed
            pairs = zip(self._row(), child._row(), strict=False)
            copied = list(pairs)[len(shared) * size : computed]
            child.copies = np.array(copied, dtype=np.int32).reshape(-1, 2)
            self._cache._sequences.add(child)
            children.append(child)
        return children

    def finish(self, after: Fence | None = None) -> None:
        """Publish what can be published, then give everything back."""
        if not self._done:
            self._publish(after)
            self.abort(after)

    def abort(self, after: Fence | None = None) -> None:
        """Give everything back without publishing."""
        if not self._done:
            self._done = True
            self._lease.release()
            self._cache._give_back([slot for page in self._own for slot in page], after)
            self._own = []
            self._cache._sequences.discard(self)

    def __enter__(self) -> Sequence:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()

    def __del__(self) -> None:
        self.abort()


class PrefixCache:
    """Tree, pool and the life of requests."""

    def __init__(
        self,
        num_slots: int,
        page_size: int = 1,
        policy: str = "lru",
        *,
        enabled: bool = True,
        **_: Any,
    ) -> None:
        self.page_size = page_size
        self.enabled = enabled
        self.pool = SlotPool(num_slots, page_size)
        self.tree = RadixTree(page_size, policy)
        self._sequences: weakref.WeakSet[Sequence] = weakref.WeakSet()  # dropping one aborts it
        self._waiting = 0
        self._queried = 0
        self._hits = 0

    def begin(
        self,
        tokens: Tokens,
        namespace: Any = None,
        *,
        tenant: Any = None,
        priority: int = 0,
        out: Slots | None = None,
    ) -> Sequence:
        """Take the longest cached prefix that leaves a token to compute."""
        known = _checked(tokens, self.tree._limit)
        if self.enabled:
            found = len(self.tree._walk(known[:-1], namespace)) * self.page_size
            if out is not None and len(out) < found:
                raise InvalidInputError(f"the row has {len(out)} places, {found} are needed")
            lease = self.tree.lock_prefix(known[:-1], namespace)
        else:
            lease = Lease(self.tree, namespace, [])
        self._queried += len(known)
        self._hits += lease.length
        sequence = Sequence(self, namespace, known, lease, out)
        self._sequences.add(sequence)
        return sequence

    def _find(self, num_pages: int, chosen: Iterable[int] | None = None) -> list[list[int]]:
        """Find pages: free ones first, then evict only the shortfall."""
        size = self.page_size
        free, evictable = self.pool.num_free, self.tree.evictable_tokens
        if num_pages * size > free + evictable:
            raise CapacityError(num_pages * size, free, evictable, self.tree.protected_tokens)
        shortfall = max(0, num_pages - free // size)
        pages = None if chosen is None else list(chosen)
        hint = None
        if pages is not None:
            hint = [slot for page in pages for slot in self.pool._page_slots(page)]
        evicted = self.tree._evict_pages(shortfall, hint)
        if pages is None:
            return self.pool._take(num_pages - shortfall) + sorted(
                list(page.slots) for page in evicted
            )
        # All evicted pages go to the caller, whatever the order in which it got them.
        self.pool.free([slot for page in evicted for slot in page.slots])
        return self.pool._take(num_pages, pages)

    def _give_back(self, slots: list[int], after: Fence | None) -> None:
        if after is not None and after._cache is not self:
            raise InvalidInputError("the fence belongs to another cache")
        if after is None or after._signalled:
            self.pool.free(slots)
        else:
            after._slots += slots
            self._waiting += len(slots)

    def fence(self) -> Fence:
        """Return a fence that slots can wait for."""
        return Fence(self)

    def signal(self, fence: Fence) -> None:
        """Let the slots that waited for the fence go back to the pool."""
        fence._signal()

    def reset(self) -> None:
        """Forget everything cached; sequences keep what they use."""
        self.pool.free(self.tree.reset())

    def stats(self) -> dict[str, int]:
        """Return the counters, in tokens."""
        return {
            "num_slots": self.pool.num_slots,
            "num_free": self.pool.num_free,
            "cached_tokens": self.tree.cached_tokens,
            "evictable_tokens": self.tree.evictable_tokens,
            "protected_tokens": self.tree.protected_tokens,
            "held_tokens": sum(sequence.held_tokens for sequence in self._sequences),
            "waiting_tokens": self._waiting,
            "num_sequences": len(self._sequences),
            "num_nodes": self.tree.num_nodes,
            "queried_tokens": self._queried,
            "hit_tokens": self._hits,
            "evicted_tokens": self.tree.evicted_tokens,
            "inserted_tokens": self.tree.inserted_tokens,
        }

    def audit(self) -> list[dict[str, Any]]:
        """Return what every live sequence owns."""
        return [
            {
                "num_tokens": sequence.num_tokens,
                "num_published": sequence.num_published,
                "num_computed": sequence.num_computed,
                "num_reserved": sequence.num_reserved,
                "slots": _array(itertools.chain.from_iterable(sequence._own)),
            }
            for sequence in self._sequences
        ]

    def check(self) -> None:
        """Raise IntegrityError where an invariant is broken."""
        self.tree.check()
        self.pool.check()
        stats = self.stats()
        parts = ("num_free", "cached_tokens", "held_tokens", "waiting_tokens")
        if sum(stats[part] for part in parts) != self.pool.num_slots:
            raise IntegrityError(f"slots are lost or owned twice: {stats}")
