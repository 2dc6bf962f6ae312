"""State machines that drive a system under test and the reference side by side.

``system`` of a machine is a namespace with ``RadixTree``, ``SlotPool`` and ``PrefixCache``: the
package itself in the tests, a reference with a planted bug in the tests of the machines. The
system acts first; where the contract leaves a choice open (which free page is handed out), the
reference takes the system's choice after checking that it was allowed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import reference
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from radix_rs.errors import (
    CapacityError,
    DoubleFreeError,
    InvalidInputError,
    LeaseError,
    RadixError,
    StaleHandleError,
)

# Each run uses one pair, the first of it mostly: only an injective encoding keeps them apart.
SPACE_PAIRS: list[tuple[Any, Any]] = [
    (None, "x"),
    (b"x", "x"),
    (None, ""),
    ((("adapter", "x"),), "x"),
    ((("adapter", "x"),), (("salt", "x"),)),
    ((("adapter", "a"), ("salt", "bc")), (("adapter", "ab"), ("salt", "c"))),
    ((("adapter", 1),), (("adapter", "1"),)),
]
NUMBERS = {
    CapacityError: ("needed", "free", "evictable", "protected"),
    DoubleFreeError: ("slot",),
}
PICK = st.integers(0, 63)


@dataclass
class Outcome:
    """What a call gave: a value or a typed error."""

    value: Any = None
    error: RadixError | None = None

    def describe(self) -> tuple[Any, ...] | None:
        """Return what two outcomes must agree on where they are errors."""
        if self.error is None:
            return None
        kind = next(k for k in type(self.error).__mro__ if k.__module__ == "radix_rs.errors")
        numbers = NUMBERS.get(kind, ())  # type: ignore[arg-type]
        return (kind, *(getattr(self.error, name) for name in numbers))


def attempt(call: Callable[[], Any]) -> Outcome:
    """Call, and keep a typed error as a value. Any other exception is a failure."""
    try:
        return Outcome(value=call())
    except RadixError as error:
        # Without its traceback: the frames there would keep dropped objects alive.
        return Outcome(error=error.with_traceback(None))


def same_error(real: Outcome, model: Outcome) -> bool:
    """Require equal errors with equal numbers; tell whether there was one."""
    assert real.describe() == model.describe(), (real, model)
    return real.error is not None


def ints(array: Any) -> list[int]:
    """Return slots as plain ints, and insist on int32 on the way."""
    array = np.asarray(array)
    assert array.dtype == np.int32, array.dtype
    assert array.ndim == 1, array.shape
    return [int(x) for x in array]


def same_slots(real: Any, model: Any) -> None:
    """Require equal slots in equal order."""
    found, expected = ints(real), ints(model)
    assert found == expected, (found, expected)


def tokens_of(pages: str, tail: str, page_size: int) -> list[int]:
    """Spell pages that collide: "a" and "b" are constant, "c" is "a" except for its last token."""
    blocks = {
        "a": [7] * page_size,
        "b": [8] * page_size,
        "c": [7] * (page_size - 1) + [9],
    }
    tokens = [token for page in pages for token in blocks[page]]
    return tokens + {"a": [7], "b": [8], "c": [9]}[tail[0]] * len(tail) if tail else tokens


def page_letters(max_size: int, min_size: int = 0) -> st.SearchStrategy[str]:
    """Return pages that often repeat what was said before."""
    letters = st.sampled_from("aaabbc")
    return st.lists(letters, min_size=min_size, max_size=max_size).map("".join)


PAGES = page_letters(6)
# Which namespace of the pair.
SPACES = st.sampled_from([0, 0, 0, 1])
# Rare steps draw this and act on zero only.
RARELY = st.integers(0, 5)
# How many pages to evict; the last one means everything.
EVICTIONS = st.sampled_from([0, 1, 1, 1, 2, 2, 3, 4, 99])
# A tail: a letter and how much of a page it fills, as a share of 16.
TAILS = st.tuples(st.sampled_from("ab"), st.integers(0, 15))
INPUTS = st.sampled_from(["list", "int32", "int64", "uint32"])


# No fence, or which one.
FENCES = st.sampled_from([None, None, 0, 1, 2])


def as_input(tokens: list[int], kind: str) -> Any:
    """Spell tokens in one of the accepted forms."""
    return tokens if kind == "list" else np.array(tokens, dtype=kind)


class Machine(RuleBasedStateMachine):
    """What the machines share."""

    system: ClassVar[Any]

    def spell(self, pages: str, tail: tuple[str, int], page_size: int) -> list[int]:
        """Return the tokens of some pages and a part of one."""
        letter, share = tail
        return tokens_of(pages, letter * (share * page_size // 16), page_size)


# -- PrefixCache


@dataclass
class SequencePair:
    """A sequence of the system and its reference."""

    real: Any
    model: reference.Sequence
    namespace: Any
    row: Any = None


@dataclass
class FencePair:
    """A fence of the system and its reference."""

    real: Any
    model: reference.Fence


class PrefixCacheMachine(Machine):
    """The life of requests: every number, row, victim and error as the reference has it."""

    def __init__(self) -> None:
        super().__init__()
        self.sequences: list[SequencePair] = []
        self.finished: list[SequencePair] = []
        self.fences: list[FencePair] = []
        self.spoken: list[tuple[list[int], Any]] = []  # texts of sequences that ended

    @initialize(
        page_size=st.sampled_from([4, 1, 16]),
        num_pages=st.sampled_from([1, 2, 4, 6, 8, 10, 12, 16, 24, 40]),
        enabled=st.sampled_from([True] * 7 + [False]),
        spaces=st.sampled_from(SPACE_PAIRS),
    )
    def create(
        self, page_size: int, num_pages: int, enabled: bool, spaces: tuple[Any, Any]
    ) -> None:
        """Start with an empty cache."""
        self.page_size = page_size
        self.spaces = spaces
        num_slots = num_pages * page_size
        self.real = self.system.PrefixCache(num_slots, page_size, enabled=enabled)
        self.model = reference.PrefixCache(num_slots, page_size, enabled=enabled)

    def pick(self, index: int) -> SequencePair:
        """Return one of the live sequences."""
        return self.sequences[index % len(self.sequences)]

    def fence_of(self, index: int | None) -> FencePair | None:
        """Return a fence or none; a new one as long as there are few."""
        if index is None:
            return None
        if index >= len(self.fences) and len(self.fences) < 3:
            self.fences.append(FencePair(self.real.fence(), self.model.fence()))
        return self.fences[index % len(self.fences)]

    # -- begin

    def start(self, tokens: list[int], namespace: Any, kind: str, row_size: int | None) -> bool:
        """Begin a sequence on both sides; tell whether it began."""
        rows: list[Any] = [None, None]
        if row_size is not None:
            rows = [np.full(row_size, -1, dtype=np.int32) for _ in range(2)]
        given = as_input(tokens, kind)
        real = attempt(lambda: self.real.begin(given, namespace, out=rows[0]))
        model = attempt(lambda: self.model.begin(tokens, namespace, out=rows[1]))
        if same_error(real, model):
            return False
        self.sequences.append(SequencePair(real.value, model.value, namespace, rows[0]))
        return True

    @precondition(lambda self: len(self.sequences) < 8)
    @rule(
        pages=PAGES,
        tail=TAILS,
        space=SPACES,
        kind=INPUTS,
        row_size=st.sampled_from([None] * 4 + [8, 400]),
        compute=st.booleans(),
    )
    def begin(
        self,
        pages: str,
        tail: tuple[str, int],
        space: int,
        kind: str,
        row_size: int | None,
        compute: bool,
    ) -> None:
        """A request arrives, and may be computed at once."""
        tokens = self.spell(pages, tail, self.page_size)
        if self.start(tokens, self.spaces[space], kind, row_size) and compute:
            self.prefill_on(self.sequences[-1], None)

    @precondition(lambda self: len(self.sequences) < 7)
    @rule(pages=PAGES, more=page_letters(2), tail=TAILS, space=SPACES, fence=FENCES)
    def begin_twins(
        self, pages: str, more: str, tail: tuple[str, int], space: int, fence: int | None
    ) -> None:
        """Two requests compute the same pages, neither knowing of the other."""
        ends = [self.spell(text, tail, self.page_size) for text in (pages + more, pages)]
        begun = [self.start(tokens, self.spaces[space], "list", None) for tokens in ends]
        assert begun == [True, True]
        for pair in self.sequences[-2:]:
            self.reserve_on(pair, max(0, pair.model.num_tokens - pair.model.num_reserved))
        for pair in self.sequences[-2:]:
            self.commit_on(pair, pair.model.num_reserved, fence)

    @precondition(lambda self: len(self.sequences) < 8)
    @rule(pages=PAGES, tail=TAILS, space=SPACES, answer=TAILS)
    def live(self, pages: str, tail: tuple[str, int], space: int, answer: tuple[str, int]) -> None:
        """A whole life: begin, compute, answer, finish."""
        tokens = self.spell(pages, tail, self.page_size)
        if not self.start(tokens, self.spaces[space], "list", None):
            return
        pair = self.sequences[-1]
        if self.prefill_on(pair, None):
            self.decode_on(pair, {"a": 7, "b": 8}[answer[0]], answer[1])
        self.finish_on(len(self.sequences) - 1, None)

    @precondition(lambda self: self.spoken and len(self.sequences) < 8)
    @rule(turn=PICK, pages=page_letters(2), kind=INPUTS, compute=st.booleans())
    def begin_next_turn(self, turn: int, pages: str, kind: str, compute: bool) -> None:
        """A request repeats or goes on with what an earlier one said."""
        tokens, namespace = self.spoken[turn % len(self.spoken)]
        tokens = tokens + tokens_of(pages, "", self.page_size)
        if self.start(tokens, namespace, kind, None) and compute:
            self.prefill_on(self.sequences[-1], None)

    @rule(
        rarely=RARELY,
        position=st.integers(0, 5),
        value=st.sampled_from([-1, -(2**31), 2**31, 2**40]),
    )
    def begin_with_a_foreign_token(self, rarely: int, position: int, value: int) -> None:
        """A token id out of range is named, with its position."""
        if rarely:
            return
        tokens = [7] * 6
        tokens[position] = value
        real = attempt(lambda: self.real.begin(np.array(tokens, dtype=np.int64)))
        assert isinstance(real.error, InvalidInputError), real
        assert (real.error.position, real.error.value) == (position, value)

    # -- slots and tokens

    def reserve_on(self, pair: SequencePair, count: int) -> bool:
        """Reserve on both sides; tell whether there was room."""
        size, model = self.page_size, pair.model
        before = model.num_published // size + len(model._own)
        end = model.num_reserved + count
        real = attempt(lambda: pair.real.reserve(count))
        chosen = None
        if real.error is None:
            row = ints(pair.real.slots)
            assert len(row) == end
            chosen = [row[page * size] // size for page in range(before, -(-end // size))]
        answer = attempt(lambda: model.reserve(count, chosen=chosen))
        if same_error(real, answer):
            return False
        same_slots(real.value, answer.value)
        return True

    @precondition(lambda self: self.sequences)
    @rule(index=PICK, count=st.integers(0, 40))
    def reserve(self, index: int, count: int) -> None:
        """Find slots for more tokens."""
        self.reserve_on(self.pick(index), count)

    @precondition(lambda self: self.sequences)
    @rule(index=PICK, pages=page_letters(2), tail=TAILS, kind=INPUTS)
    def append(self, index: int, pages: str, tail: tuple[str, int], kind: str) -> None:
        """Tokens were sampled."""
        pair = self.pick(index)
        tokens = self.spell(pages, tail, self.page_size)
        pair.real.append(as_input(tokens, kind))
        pair.model.append(tokens)

    @precondition(lambda self: self.sequences)
    @rule(rarely=RARELY, index=PICK, value=st.sampled_from([-1, 2**31]))
    def append_a_foreign_token(self, rarely: int, index: int, value: int) -> None:
        """A wrong token appends nothing."""
        if rarely:
            return
        pair = self.pick(index)
        real = attempt(lambda: pair.real.append([7, value]))
        assert isinstance(real.error, InvalidInputError), real
        assert (real.error.position, real.error.value) == (1, value)

    def commit_on(self, pair: SequencePair, num_computed: int, fence: int | None) -> None:
        """Commit on both sides and compare the range that changed."""
        after = self.fence_of(fence)
        before = ints(pair.real.slots)
        if after is None:
            real = attempt(lambda: pair.real.commit(num_computed))
            model = attempt(lambda: pair.model.commit(num_computed))
        else:
            real = attempt(lambda: pair.real.commit(num_computed, after=after.real))
            model = attempt(lambda: pair.model.commit(num_computed, after=after.model))
        if same_error(real, model):
            return
        start, stop = real.value
        assert (start, stop) == model.value
        changed = [
            i for i, (a, b) in enumerate(zip(before, pair.real.slots, strict=True)) if a != b
        ]
        # The range is the smallest that holds every change, or empty.
        assert changed[:1] + changed[-1:] == ([start, stop - 1] if changed else [])
        assert changed or start == stop

    @precondition(lambda self: self.sequences)
    @rule(index=PICK, share=st.integers(0, 17), fence=FENCES)
    def commit(self, index: int, share: int, fence: int | None) -> None:
        """K and V exist up to a point, which may be wrong or lie before the last one."""
        pair = self.pick(index)
        self.commit_on(pair, pair.model.num_reserved * share // 16, fence)

    @precondition(lambda self: self.sequences)
    @rule(index=PICK, fence=FENCES, share=st.sampled_from([16, 8, 4]))
    def prefill(self, index: int, fence: int | None, share: int) -> None:
        """What an engine does with a prompt: slots for all of it, then compute it, or a chunk."""
        self.prefill_on(self.pick(index), fence, share)

    def prefill_on(self, pair: SequencePair, fence: int | None, share: int = 16) -> bool:
        """Reserve what is known and commit a share; tell whether there was room."""
        missing = max(0, pair.model.num_tokens - pair.model.num_reserved)
        if not self.reserve_on(pair, missing):
            return False
        self.commit_on(pair, pair.model.num_reserved * share // 16, fence)
        return True

    @precondition(lambda self: self.sequences)
    @rule(index=PICK, token=st.sampled_from([7, 8, 9]), steps=st.integers(1, 6))
    def decode(self, index: int, token: int, steps: int) -> None:
        """What an engine does with each new token."""
        self.decode_on(self.pick(index), token, steps)

    def decode_on(self, pair: SequencePair, token: int, steps: int) -> None:
        """Reserve, compute and append, one by one."""
        for _ in range(steps):
            if not self.reserve_on(pair, 1):
                break
            self.commit_on(pair, pair.model.num_reserved, None)
            pair.real.append([token])
            pair.model.append([token])

    @precondition(lambda self: self.sequences)
    @rule(index=PICK, share=st.integers(0, 17))
    def truncate(self, index: int, share: int) -> None:
        """Roll back, anywhere."""
        pair = self.pick(index)
        length = max(pair.model.num_tokens, pair.model.num_reserved)
        self.truncate_on(pair, length * share // 16)

    @precondition(lambda self: self.sequences)
    @rule(index=PICK, back=st.integers(0, 20))
    def truncate_the_last(self, index: int, back: int) -> None:
        """Roll back a few tokens."""
        pair = self.pick(index)
        self.truncate_on(pair, max(0, pair.model.num_tokens - back))

    def truncate_on(self, pair: SequencePair, length: int) -> None:
        """Truncate on both sides."""
        real = attempt(lambda: pair.real.truncate(length))
        same_error(real, attempt(lambda: pair.model.truncate(length)))

    @precondition(lambda self: self.sequences and len(self.sequences) < 8)
    @rule(
        index=PICK,
        count=st.sampled_from([1, 1, 2, 3, 0]),
        share=st.none() | st.integers(0, 17),
        compute=st.booleans(),
    )
    def fork(self, index: int, count: int, share: int | None, compute: bool) -> None:
        """Share everything before a point, which may lie inside a page."""
        pair = self.pick(index)
        if compute:
            self.prefill_on(pair, None)
        at = None if share is None else pair.model.num_tokens * share // 16
        real = attempt(lambda: pair.real.fork(count, at))
        chosen = None
        if real.error is None:
            assert len(real.value) == count
            chosen = []
            for child in real.value:
                row, published = ints(child.slots), child.num_published
                heads = row[published :: self.page_size]
                chosen.append([slot // self.page_size for slot in heads])
        model = attempt(lambda: pair.model.fork(count, at, chosen=chosen))
        if same_error(real, model):
            return
        for real_child, model_child in zip(real.value, model.value, strict=True):
            copies = np.asarray(real_child.copies)
            assert copies.dtype == np.int32
            assert copies.shape == model_child.copies.shape
            assert copies.tolist() == model_child.copies.tolist()
            self.sequences.append(SequencePair(real_child, model_child, pair.namespace))

    # -- the end

    def leave(self, index: int) -> SequencePair:
        """Take a sequence out of the live ones and remember its text."""
        pair = self.pick(index)
        self.sequences.remove(pair)
        self.spoken.append((list(pair.model._tokens), pair.namespace))
        return pair

    @precondition(lambda self: self.sequences)
    @rule(index=PICK, fence=FENCES)
    def finish(self, index: int, fence: int | None) -> None:
        """A request is done."""
        self.finish_on(index, fence)

    def finish_on(self, index: int, fence: int | None) -> None:
        """Finish on both sides."""
        pair, after = self.leave(index), self.fence_of(fence)
        if after is None:
            pair.real.finish()
            pair.model.finish()
        else:
            pair.real.finish(after=after.real)
            pair.model.finish(after=after.model)
        self.finished.append(pair)

    @precondition(lambda self: self.sequences)
    @rule(index=PICK, fence=FENCES)
    def abort(self, index: int, fence: int | None) -> None:
        """A request is cancelled."""
        pair, after = self.leave(index), self.fence_of(fence)
        if after is None:
            pair.real.abort()
            pair.model.abort()
        else:
            pair.real.abort(after=after.real)
            pair.model.abort(after=after.model)
        self.finished.append(pair)

    @precondition(lambda self: self.sequences)
    @rule(index=PICK)
    def drop(self, index: int) -> None:
        """A request is forgotten without a word."""
        pair = self.leave(index)
        pair.model.abort()
        del pair.real, pair
        gc.collect()

    @precondition(lambda self: self.finished)
    @rule(
        rarely=RARELY,
        index=PICK,
        call=st.sampled_from(["reserve", "append", "commit", "truncate", "fork"]),
    )
    def use_after_the_end(self, rarely: int, index: int, call: str) -> None:
        """A finished sequence refuses to work, and ending it again is harmless."""
        if rarely:
            return
        sequence = self.finished[index % len(self.finished)].real
        arguments = {"reserve": (1,), "append": ([7],), "commit": (0,), "truncate": (0,)}
        outcome = attempt(lambda: getattr(sequence, call)(*arguments.get(call, ())))
        assert isinstance(outcome.error, LeaseError), outcome
        sequence.finish()
        sequence.abort()

    # -- the cache

    @rule(pages=PAGES, tail=TAILS, space=SPACES)
    def match(self, pages: str, tail: tuple[str, int], space: int) -> None:
        """A probe of the scheduler: right, and without a trace."""
        tokens = self.spell(pages, tail, self.page_size)
        namespace = self.spaces[space]
        real = self.real.tree.match_prefix(tokens, namespace)
        same_slots(real.slots, self.model.tree.match_prefix(tokens, namespace).slots)

    @rule(pages=PAGES, space=SPACES)
    def touch(self, pages: str, space: int) -> None:
        """Stamps decide who goes next."""
        tokens = tokens_of(pages, "", self.page_size)
        self.real.tree.touch(tokens, self.spaces[space])
        self.model.tree.touch(tokens, self.spaces[space])

    @rule(pages=EVICTIONS, rest=st.integers(0, 3), whole_leaves=st.booleans())
    def evict(self, pages: int, rest: int, whole_leaves: bool) -> None:
        """The owner makes room by hand; the slots go back to the pool."""
        count = max(0, pages * self.page_size - rest * self.page_size // 4)
        real = self.real.tree.evict(count, whole_leaves=whole_leaves)
        slots = ints(real)
        model = self.model.tree.evict(count, whole_leaves=whole_leaves, hint=slots)
        assert sorted(slots) == sorted(ints(model))
        self.real.pool.free(real)
        self.model.pool.free(model)

    @rule(rarely=RARELY)
    def reset(self, rarely: int) -> None:
        """The weights changed."""
        if rarely:
            return
        self.real.reset()
        self.model.reset()

    @precondition(lambda self: self.fences)
    @rule(index=PICK, keep=st.booleans())
    def signal(self, index: int, keep: bool) -> None:
        """The step is over; a second signal is harmless."""
        pair = self.fences[index % len(self.fences)]
        self.real.signal(pair.real)
        self.model.signal(pair.model)
        if not keep:
            self.fences.remove(pair)

    @precondition(lambda self: self.fences)
    @rule(index=PICK)
    def drop_a_fence(self, index: int) -> None:
        """A fence that nobody can signal any more holds nothing back."""
        pair = self.fences.pop(index % len(self.fences))
        self.model.signal(pair.model)
        del pair.real, pair
        gc.collect()

    # -- after every step

    @invariant()
    def agrees(self) -> None:
        """Every number and every row is the reference's."""
        if not hasattr(self, "real"):
            return
        self.real.check()
        self.model.check()
        expected = self.model.stats()
        found = self.real.stats()
        for name, value in expected.items():
            if name != "num_nodes":
                number = found[name] if isinstance(found, dict) else getattr(found, name)
                assert number == value, (name, number, value)
        assert self.real.pool.num_free == expected["num_free"]
        for pair in self.sequences:
            for name in (
                "num_tokens",
                "cached_len",
                "num_computed",
                "num_reserved",
                "num_published",
            ):
                real, model = getattr(pair.real, name), getattr(pair.model, name)
                assert real == model, (name, real, model)
            same_slots(pair.real.slots, pair.model.slots)
            same_slots(pair.real.page_table, pair.model.page_table)
            if pair.row is not None:
                same_slots(pair.row[: pair.model.num_reserved], pair.model.slots)

    def teardown(self) -> None:
        """However the run ended, letting go of everything leaves only the cache."""
        if not hasattr(self, "real"):
            return
        for pair in self.sequences:
            pair.real.abort()
        for fence in self.fences:
            self.real.signal(fence.real)
        self.real.check()
        real = self.real
        assert real.tree.protected_tokens == 0
        assert real.pool.num_free + real.tree.cached_tokens == real.pool.num_slots


# -- RadixTree


@dataclass
class LeasePair:
    """A lease of the system, its reference, and what it covers."""

    real: Any
    model: reference.Lease
    tokens: list[int]
    namespace: Any


@dataclass
class HandlePair:
    """A handle of the system and its reference."""

    real: Any
    model: reference.Handle


@dataclass
class Engine:
    """An engine that owns its slots: it knows which pages are its own and free."""

    num_pages: int
    page_size: int
    free: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = list(range(self.num_pages))

    def take(self, num_pages: int) -> list[int]:
        """Take the slots of some free pages, last freed first."""
        pages = [self.free.pop() for _ in range(num_pages)]
        return [page * self.page_size + i for page in pages for i in range(self.page_size)]

    def give(self, slots: list[int]) -> None:
        """Take whole pages back, which must be the engine's and not free."""
        pages = {slot // self.page_size for slot in slots}
        assert len(slots) == len(set(slots)) == len(pages) * self.page_size
        assert not pages.intersection(self.free)
        self.free.extend(sorted(pages))


class RadixTreeMachine(Machine):
    """The tree alone, driven by an engine that owns its slots."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: list[LeasePair] = []
        self.handles: list[HandlePair] = []

    @initialize(
        page_size=st.sampled_from([4, 1, 16]),
        num_pages=st.integers(4, 40),
        spaces=st.sampled_from(SPACE_PAIRS),
    )
    def create(self, page_size: int, num_pages: int, spaces: tuple[Any, Any]) -> None:
        """Start with an empty tree."""
        self.page_size = page_size
        self.spaces = spaces
        self.engine = Engine(num_pages, page_size)
        self.real = self.system.RadixTree(page_size)
        self.model = reference.RadixTree(page_size)
        self.foreign = self.system.RadixTree(page_size)

    def pick(self, index: int) -> LeasePair:
        """Return one of the live leases."""
        return self.leases[index % len(self.leases)]

    def text(
        self, pages: str, tail: tuple[str, int], space: int, place: int | None
    ) -> tuple[list[int], Any]:
        """Return some tokens and their namespace, or those of the path to a page that is cached."""
        cached = [page for page in self.model._pages if not page.old]
        if place is None or not cached:
            return self.spell(pages, tail, self.page_size), self.spaces[space]
        path = cached[place % len(cached)].path()
        tokens = [token for page in path for token in page.tokens]
        return tokens, self.space_of(path)

    def space_of(self, path: list[reference.Page]) -> Any:
        """Return the namespace of a path."""
        return next(s for s in self.spaces if self.model._root(s) is path[0].parent)

    def new_slots(self, tokens: list[int]) -> list[int] | None:
        """Return slots for all tokens, a page for a tail too, or None without room."""
        num_pages = -(-len(tokens) // self.page_size)
        if num_pages > len(self.engine.free):
            return None
        return self.engine.take(num_pages)

    # -- insert

    def insert_both(
        self, tokens: list[int], namespace: Any, kind: str, lease: LeasePair | None
    ) -> None:
        """Insert on both sides; the engine keeps exactly the slots that the tree did not take."""
        slots = self.new_slots(tokens)
        if slots is None:
            return
        given = np.array(slots[: len(tokens)], dtype=np.int32)
        spelled = as_input(tokens, kind)
        if lease is None:
            real = attempt(lambda: self.real.insert(spelled, given, namespace))
            model = attempt(lambda: self.model.insert(tokens, given, namespace))
        else:
            real = attempt(lambda: self.real.insert(spelled, given, namespace, lease=lease.real))
            model = attempt(lambda: self.model.insert(tokens, given, namespace, lease=lease.model))
        if same_error(real, model):
            self.engine.give(slots)
            return
        whole = len(tokens) // self.page_size * self.page_size
        assert real.value.cached_len == model.value.cached_len
        self.engine.give(slots[: real.value.cached_len] + slots[whole:])
        assert real.value.handle.end_depth == whole
        self.fresh(real.value.handle, model.value.handle)
        if lease is not None:
            lease.tokens = tokens[:whole]

    @rule(
        pages=PAGES,
        tail=TAILS,
        space=SPACES,
        kind=INPUTS,
    )
    def insert(self, pages: str, tail: tuple[str, int], space: int, kind: str) -> None:
        """An engine publishes."""
        tokens = self.spell(pages, tail, self.page_size)
        self.insert_both(tokens, self.spaces[space], kind, None)

    @precondition(lambda self: self.leases)
    @rule(index=PICK, pages=page_letters(3), tail=TAILS, kind=INPUTS)
    def insert_with_lease(self, index: int, pages: str, tail: tuple[str, int], kind: str) -> None:
        """A running request publishes what follows its lease."""
        pair = self.pick(index)
        tokens = pair.tokens + self.spell(pages, tail, self.page_size)
        self.insert_both(tokens, pair.namespace, kind, pair)

    @precondition(lambda self: self.leases)
    @rule(index=PICK, pages=PAGES)
    def insert_with_a_lease_of_other_tokens(self, index: int, pages: str) -> None:
        """The lease must cover a leading part of the tokens."""
        pair = self.pick(index)
        self.insert_both(tokens_of(pages, "", self.page_size), pair.namespace, "list", pair)

    @rule(
        rarely=RARELY,
        pages=page_letters(3, min_size=1),
        fault=st.sampled_from(["length", "negative", "gap", "unaligned", "token", "lease"]),
    )
    def insert_wrongly(self, rarely: int, pages: str, fault: str) -> None:
        """A wrong insert changes nothing and says what is wrong."""
        if rarely:
            return
        tokens = tokens_of(pages, "", self.page_size)
        base = self.engine.num_pages * self.page_size
        slots = [base + i for i in range(len(tokens))]
        lease = None
        expected: type[RadixError] = InvalidInputError
        # A namespace that nothing else uses: every page is new there.
        namespace = "wrong"
        if fault == "length":
            slots = slots[:-1]
        elif fault == "negative":
            slots = [slot - base - 1024 for slot in slots]
        elif fault == "gap":
            if self.page_size == 1:
                return
            slots[-1] += 1
        elif fault == "unaligned":
            if self.page_size == 1:
                return
            slots = [slot + 1 for slot in slots]
        elif fault == "token":
            tokens[-1] = -3
        elif fault == "lease":
            lease = self.foreign.lock_prefix([])
            expected = LeaseError
        outcome = attempt(lambda: self.real.insert(tokens, slots, namespace, lease=lease))
        assert isinstance(outcome.error, expected), outcome
        if fault == "token":
            assert isinstance(outcome.error, InvalidInputError)
            assert (outcome.error.position, outcome.error.value) == (len(tokens) - 1, -3)
        assert self.real.match_prefix(tokens_of(pages, "", self.page_size), namespace).length == 0

    # -- match, lock, touch

    @rule(
        pages=PAGES,
        tail=TAILS,
        space=SPACES,
        place=st.none() | PICK,
        twist=st.none() | st.integers(0, 20),
        kind=INPUTS,
        start=st.integers(0, 30),
    )
    def match(
        self,
        pages: str,
        tail: tuple[str, int],
        space: int,
        place: int | None,
        twist: int | None,
        kind: str,
        start: int,
    ) -> None:
        """A match is exact at rest, in whatever form it is read, and leaves no trace."""
        tokens, namespace = self.text(pages, tail, space, place)
        if twist is not None and twist < len(tokens):
            # Nearly what is cached is not what is cached.
            tokens[-1 - twist] = 5
        stats, num_nodes = self.real.stats(), self.real.num_nodes
        real = self.real.match_prefix(as_input(tokens, kind), namespace)
        model = self.model.match_prefix(tokens, namespace)
        assert real.length == model.length
        same_slots(real.slots, model.slots)
        assert [slot for s in real.segments for slot in ints(s)] == ints(model.slots)
        rows = [np.full(40, -1, dtype=np.int32) for _ in range(2)]
        assert real.write_slots(rows[0], start) == model.write_slots(rows[1], start)
        same_slots(rows[0], rows[1])
        assert real.handle.end_depth == real.length
        self.fresh(real.handle, model.handle)
        assert self.real.stats() == stats
        assert self.real.num_nodes == num_nodes

    @rule(token=st.sampled_from([-1, 2**31, 2**33]))
    def match_a_foreign_token(self, token: int) -> None:
        """A token that cannot be is not found; the ones before it are."""
        tokens = [7] * self.page_size + [token] * self.page_size
        real = self.real.match_prefix(np.array(tokens, dtype=np.int64))
        same_slots(real.slots, self.model.match_prefix(tokens).slots)

    @precondition(lambda self: len(self.leases) < 8)
    @rule(pages=PAGES, tail=TAILS, space=SPACES, place=st.none() | PICK)
    def lock(self, pages: str, tail: tuple[str, int], space: int, place: int | None) -> None:
        """A lock protects and stamps exactly what it matched."""
        tokens, namespace = self.text(pages, tail, space, place)
        real = self.real.lock_prefix(tokens, namespace)
        model = self.model.lock_prefix(tokens, namespace)
        assert real.handle.end_depth == real.length == model.length
        self.leases.append(LeasePair(real, model, tokens[: model.length], namespace))
        self.fresh(real.handle, model.handle)

    @rule(
        pages=PAGES,
        tail=TAILS,
        space=SPACES,
        place=st.none() | PICK,
        num_evicted=st.integers(0, 2),
    )
    def touch(
        self,
        pages: str,
        tail: tuple[str, int],
        space: int,
        place: int | None,
        num_evicted: int,
    ) -> None:
        """A touch stamps exactly what it matched, which the next victims tell."""
        tokens, namespace = self.text(pages, tail, space, place)
        self.real.touch(tokens, namespace)
        self.model.touch(tokens, namespace)
        self.evict_both(num_evicted * self.page_size, False)

    @precondition(lambda self: self.leases)
    @rule(index=PICK, again=st.booleans())
    def release(self, index: int, again: bool) -> None:
        """Releasing twice is harmless."""
        pair = self.leases.pop(index % len(self.leases))
        pair.real.release()
        if again:
            pair.real.release()
        pair.model.release()

    @precondition(lambda self: self.leases)
    @rule(index=PICK)
    def drop_a_lease(self, index: int) -> None:
        """A forgotten lease protects nothing."""
        pair = self.leases.pop(index % len(self.leases))
        pair.model.release()
        del pair.real, pair
        gc.collect()

    # -- handles

    def fresh(self, real: Any, model: reference.Handle) -> None:
        """A handle just taken at rest works; remember it."""
        if model.end_depth == 0 or model._page.old:
            return
        same_slots(self.real.slots(real), self.model.slots(model))
        # A handle is a value and can be a key.
        assert {real: True}[real]
        if len(self.handles) < 8:
            self.handles.append(HandlePair(real, model))

    @precondition(lambda self: self.handles)
    @rule(index=PICK, keep=st.booleans())
    def use_a_handle(self, index: int, keep: bool) -> None:
        """An old handle is right or stale, and stale for certain once its page is gone."""
        pair = self.handles[index % len(self.handles)]
        if not keep:
            self.handles.remove(pair)
        real = attempt(lambda: self.real.slots(pair.real))
        model = attempt(lambda: self.model.slots(pair.model))
        if model.error is not None:
            same_error(real, model)
        elif real.error is not None:
            # Splits and merges may end the node that a handle names before its pages go.
            assert isinstance(real.error, StaleHandleError), real
        else:
            same_slots(real.value, model.value)

    @precondition(lambda self: self.handles and len(self.leases) < 8)
    @rule(index=PICK)
    def lock_a_handle(self, index: int) -> None:
        """Locking a handle protects its path or says that it is stale."""
        pair = self.handles.pop(index % len(self.handles))
        real = attempt(lambda: self.real.lock(pair.real))
        if real.error is not None:
            assert isinstance(real.error, StaleHandleError), real
            return
        model = self.model.lock(pair.model)
        path = pair.model._page.path()
        tokens = [token for page in path for token in page.tokens]
        model._namespace = self.space_of(path)
        self.leases.append(LeasePair(real.value, model, tokens, model._namespace))

    # -- eviction

    @rule(pages=EVICTIONS, rest=st.integers(0, 3), whole_leaves=st.booleans())
    def evict(self, pages: int, rest: int, whole_leaves: bool) -> None:
        """The victims are the reference's, and their slots are the engine's again."""
        count = max(0, pages * self.page_size - rest * self.page_size // 4)
        self.evict_both(count, whole_leaves)

    def evict_both(self, count: int, whole_leaves: bool) -> None:
        """Evict on both sides."""
        slots = ints(self.real.evict(count, whole_leaves=whole_leaves))
        model = self.model.evict(count, whole_leaves=whole_leaves, hint=slots)
        assert sorted(slots) == sorted(ints(model))
        self.engine.give(slots)

    @rule(rarely=RARELY)
    def reset(self, rarely: int) -> None:
        """What no lease held comes back; the rest stays until it is released."""
        if rarely:
            return
        slots = ints(self.real.reset())
        assert sorted(slots) == sorted(ints(self.model.reset()))
        self.engine.give(slots)

    @rule(max_work=st.integers(0, 100))
    def compact(self, max_work: int) -> None:
        """Tidying up changes nothing that can be seen."""
        if hasattr(self.real, "compact"):
            self.real.compact(max_work)

    # -- after every step

    @invariant()
    def agrees(self) -> None:
        """Every number and every lease is the reference's."""
        if not hasattr(self, "real"):
            return
        self.real.check()
        self.model.check()
        for name in ("cached_tokens", "evictable_tokens", "protected_tokens"):
            real, model = getattr(self.real, name), getattr(self.model, name)
            assert real == model, (name, real, model)
        for pair in self.leases:
            assert pair.real.length == pair.model.length
            same_slots(pair.real.slots, pair.model.slots)
            assert [x for s in pair.real.segments for x in ints(s)] == ints(pair.model.slots)
        free = len(self.engine.free) * self.page_size
        total = self.engine.num_pages * self.page_size
        assert free + self.real.cached_tokens == total

    def teardown(self) -> None:
        """Once nothing is leased, everything can be evicted."""
        if not hasattr(self, "real"):
            return
        for pair in self.leases:
            pair.real.release()
        assert self.real.protected_tokens == 0
        self.engine.give(ints(self.real.evict(self.real.cached_tokens)))
        assert self.real.cached_tokens == 0
        assert len(self.engine.free) == self.engine.num_pages
        self.real.check()


# -- SlotPool


class SlotPoolMachine(Machine):
    """The pool alone, whose order at rest is fixed: the lowest free pages first."""

    @initialize(page_size=st.sampled_from([4, 1, 16]), num_pages=st.integers(1, 200))
    def create(self, page_size: int, num_pages: int) -> None:
        """Start with everything free."""
        self.page_size = page_size
        self.real = self.system.SlotPool(num_pages * page_size, page_size)
        self.model = reference.SlotPool(num_pages * page_size, page_size)
        self.held: list[int] = []  # pages

    @rule(count=st.integers(0, 100), into=st.booleans())
    def alloc(self, count: int, into: bool) -> None:
        """The lowest free pages first, or an error with numbers and no change."""
        if into:
            count = count // self.page_size * self.page_size
            rows = [np.full(count, -1, dtype=np.int32) for _ in range(2)]
            real = attempt(lambda: self.real.alloc_into(rows[0]))
            model = attempt(lambda: self.model.alloc_into(rows[1]))
            same_slots(rows[0], rows[1])
            slots = rows[1]
        else:
            real = attempt(lambda: self.real.alloc(count))
            model = attempt(lambda: self.model.alloc(count))
            slots = model.value
        if same_error(real, model):
            return
        if not into:
            same_slots(real.value, slots)
        self.held += [slot // self.page_size for slot in ints(slots)[:: self.page_size]]

    def page(self, page: int) -> list[int]:
        """Return the slots of a page."""
        return [page * self.page_size + i for i in range(self.page_size)]

    def free_both(self, slots: list[int]) -> bool:
        """Free on both sides; tell whether it worked."""
        real = attempt(lambda: self.real.free(np.array(slots, dtype=np.int32)))
        return not same_error(real, attempt(lambda: self.model.free(slots)))

    @precondition(lambda self: self.held)
    @rule(picks=st.lists(PICK, max_size=8))
    def free(self, picks: list[int]) -> None:
        """Whole pages, in any order of pages."""
        pages = []
        for pick in picks:
            if self.held:
                pages.append(self.held.pop(pick % len(self.held)))
        assert self.free_both([slot for page in pages for slot in self.page(page)])

    @rule(
        pick=PICK,
        fault=st.sampled_from(["free", "twice", "half", "outside", "negative", "order"]),
    )
    def free_wrongly(self, pick: int, fault: str) -> None:
        """A wrong give-back names its slot and changes nothing, right pages before it included."""
        held = self.page(self.held[pick % len(self.held)]) if self.held else []
        unheld = sorted(set(range(self.model.num_slots // self.page_size)) - set(self.held))
        if fault == "free" and unheld:
            wrong = held + self.page(unheld[pick % len(unheld)])
        elif fault == "twice" and held:
            wrong = held + held
        elif fault == "half" and held and self.page_size > 1:
            wrong = held[:-1]
        elif fault == "outside":
            wrong = held + self.page(self.model.num_slots // self.page_size)
        elif fault == "negative":
            wrong = held + self.page(-1)
        elif fault == "order" and held and self.page_size > 1:
            wrong = held[::-1]
        else:
            return
        assert not self.free_both(wrong)

    @invariant()
    def agrees(self) -> None:
        """The numbers are the reference's."""
        if not hasattr(self, "real"):
            return
        self.real.check()
        assert self.real.num_slots == self.model.num_slots
        assert self.real.num_free == self.model.num_free
