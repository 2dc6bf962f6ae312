"""What may be passed as tokens and slots, and what is a typed error."""

from __future__ import annotations

import array
import ctypes
import sys

import numpy as np
import pytest
from radix_rs import PrefixCache, RadixTree, SlotPool
from radix_rs.errors import InvalidInputError

TOKENS = [5, 6, 7, 8]


class ByDLPack:
    """Speaks DLPack by the capsule and nothing else."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self):
        return self.values.__dlpack__()


class ByInterface:
    """Speaks `__array_interface__` and nothing else."""

    def __init__(self, values):
        self.values = values
        self.__array_interface__ = values.__array_interface__


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def _read_only(values):
    values.flags.writeable = False
    return values


def _unaligned(values):
    raw = np.frombuffer(b"\0" + values.tobytes(), dtype=np.uint8)[1:]
    unaligned = raw.view(values.dtype)
    assert not unaligned.flags.aligned
    return unaligned


GOOD = {
    "int32": np.array(TOKENS, np.int32),
    "int64": np.array(TOKENS, np.int64),
    "uint32": np.array(TOKENS, np.uint32),
    "uint64": np.array(TOKENS, np.uint64),
    "longlong": np.array(TOKENS, np.longlong),
    "read-only": _read_only(np.array(TOKENS)),
    "every second": np.array([5, 0, 6, 0, 7, 0, 8, 0])[::2],
    "backwards": np.array(TOKENS[::-1], np.int32)[::-1],
    "a column": np.array([TOKENS, TOKENS], np.int32).T[:, 0],
    "unaligned": _unaligned(np.array(TOKENS)),
    "unaligned uint32": _unaligned(np.array(TOKENS, np.uint32)),
    "subclass": np.array(TOKENS).view(np.recarray),
    "array i": array.array("i", TOKENS),
    "array I": array.array("I", TOKENS),
    "array q": array.array("q", TOKENS),
    "array Q": array.array("Q", TOKENS),
    "memoryview": memoryview(array.array("l", TOKENS)),
    "strided memoryview": memoryview(array.array("i", [5, 0, 6, 0, 7, 0, 8, 0]))[::2],
    "bytes as int32": memoryview(np.array(TOKENS, np.int32).tobytes()).cast("i"),
    "explicit byte order": np.array(
        TOKENS, np.dtype(np.int32).newbyteorder("<" if sys.byteorder == "little" else ">")
    ),
    "ctypes": (ctypes.c_int32 * 4)(*TOKENS),
    "dlpack": ByDLPack(np.array(TOKENS)),
    "array interface": ByInterface(np.array(TOKENS)),
    "list": TOKENS,
    "tuple": tuple(TOKENS),
    "range": range(5, 9),
    "list of NumPy integers": [np.int32(5), np.int64(6), np.uint8(7), 8],
    "list of indices": [Index(5), 6, 7, 8],
}
BAD = {
    "float": (np.array(TOKENS, np.float32), "float32"),
    "empty float": (np.array([]), "float64"),
    "bool": (np.array([True]), "bool"),
    "int8": (np.array(TOKENS, np.int8), "int8"),
    "int16": (np.array(TOKENS, np.int16), "int16"),
    "text": (np.array(["5"]), "must be int32"),
    "objects": (np.array(TOKENS, object), "object"),
    "foreign byte order": (
        np.array(TOKENS).astype(np.dtype(np.int64).newbyteorder()),
        "byte order",
    ),
    "2-D": (np.array([TOKENS]), "one-dimensional, got 2"),
    "0-D": (np.array(5), "one-dimensional, got 0"),
    "NumPy scalar": (np.int64(5), "tokens"),
    "array of doubles": (array.array("d", TOKENS), "buffer format 'd'"),
    "array of chars": (array.array("b", TOKENS), "buffer format 'b'"),
    "bytes": (b"abcd", "buffer format 'B'"),
    "2-D memoryview": (memoryview(np.array([TOKENS])), "one-dimensional, got 2"),
    "str": ("5678", "not str"),
    "None": (None, "not NoneType"),
    "int": (5, "not int"),
    "set": ({5}, "not set"),
    "iterator": (iter(TOKENS), "not list_iterator"),
    "list with a float": ([5, 6.0], r"tokens\[1\] must be an integer, not float"),
    "list with a bool": ([5, True], r"tokens\[1\] must be an integer, not bool"),
    "list with None": ([None], r"tokens\[0\] must be an integer, not NoneType"),
    "list with a huge id": ([5, 2**70], r"tokens\[1\] = .* does not fit"),
    "nested list": ([TOKENS], r"tokens\[0\] must be an integer, not list"),
    "dlpack that is none": (type("X", (), {"__dlpack__": lambda self: 5})(), "no readable memory"),
}


@pytest.fixture
def tree():
    tree = RadixTree()
    tree.insert(np.array(TOKENS, np.int32), np.arange(4, dtype=np.int32))
    return tree


@pytest.mark.parametrize("values", GOOD.values(), ids=GOOD)
def test_integers_are_read_wherever_they_are(tree, values):
    assert tree.match_prefix(values).slots.tolist() == [0, 1, 2, 3]
    with tree.lock_prefix(values) as lease:
        assert lease.length == 4
    again = RadixTree()
    again.insert(values, range(4))
    assert again.match_prefix(TOKENS).length == 4
    cache = PrefixCache(8)
    sequence = cache.begin(values)
    assert sequence.num_tokens == 4
    sequence.append(values)
    assert sequence.num_tokens == 8


@pytest.mark.parametrize("values", GOOD.values(), ids=GOOD)
def test_slots_are_read_wherever_they_are(values):
    tree = RadixTree()
    tree.insert([1, 2, 3, 4], values)
    assert tree.match_prefix([1, 2, 3, 4]).slots.tolist() == TOKENS
    pool = SlotPool(16)
    pool.alloc(16)
    pool.free(values)
    assert pool.num_free == 4


@pytest.mark.parametrize(("values", "message"), BAD.values(), ids=BAD)
def test_anything_else_is_a_typed_error(tree, values, message):
    cache = PrefixCache(8)
    sequence = cache.begin([1])
    for call in (
        tree.match_prefix,
        tree.lock_prefix,
        tree.touch,
        lambda tokens: tree.insert(tokens, [9]),
        cache.begin,
        sequence.append,
    ):
        with pytest.raises(InvalidInputError, match=message):
            call(values)
    assert (tree.cached_tokens, tree.protected_tokens) == (4, 0)
    tree.check()
    cache.check()


@pytest.mark.parametrize(
    "empty",
    [[], (), range(0), np.zeros(0, np.int32), np.zeros(0, np.int64)[::2], array.array("i")],
    ids=repr,
)
def test_empty_is_fine(tree, empty):
    match = tree.match_prefix(empty)
    assert match.length == 0
    assert match.segments == ()
    assert match.slots.tolist() == []
    assert match.slots.dtype == np.int32
    assert tree.insert(empty, empty).length == 0
    assert tree.lock_prefix(empty).length == 0
    assert PrefixCache(4).begin(empty).num_tokens == 0
    SlotPool(4).free(empty)


@pytest.mark.parametrize(
    "make", [list, np.array, lambda v: array.array("q", v)], ids=["list", "numpy", "array"]
)
@pytest.mark.parametrize("wrong", [-1, -(2**63), 2**31, 2**32 + 5, 2**63 - 1])
def test_an_id_that_no_token_has_matches_nothing_and_is_refused_elsewhere(tree, make, wrong):
    values = make([5, 6, wrong, 8])
    assert tree.match_prefix(values).length == 2
    cache = PrefixCache(8)
    sequence = cache.begin([1])
    for call in (lambda tokens: tree.insert(tokens, range(4, 8)), cache.begin, sequence.append):
        with pytest.raises(InvalidInputError) as caught:
            call(values)
        assert (caught.value.position, caught.value.value) == (2, wrong)
    assert sequence.num_tokens == 1
    assert tree.cached_tokens == 4
    tree.check()
    cache.check()


def test_64_bit_atoms_have_more_ids():
    tree = RadixTree(atom="u64")
    big = np.array([2**40, 2**63 - 1, 5], np.uint64)
    tree.insert(big, [0, 1, 2])
    assert tree.match_prefix(big.astype(np.int64)).length == 3
    assert tree.match_prefix([2**40, 2**63 - 1]).length == 2
    for wrong in (np.array([2**63], np.uint64), [-1]):
        assert tree.match_prefix(wrong).length == 0
        with pytest.raises(InvalidInputError):
            tree.insert(wrong, [3])


@pytest.mark.parametrize("wrong", [-1, 2**31, 2**40])
def test_a_slot_out_of_range_is_named(wrong):
    tree = RadixTree()
    for make in (list, np.array):
        with pytest.raises(InvalidInputError, match="slot") as caught:
            tree.insert([1, 2], make([0, wrong]))
        assert (caught.value.position, caught.value.value) == (1, wrong)
    with pytest.raises(InvalidInputError):
        SlotPool(8).free([wrong])
    assert tree.cached_tokens == 0


def test_a_list_that_shrinks_while_it_is_read():
    class Shrinks:
        def __index__(self):
            values.clear()
            return 6

    values = [5, Shrinks(), 7, 8]
    tree = RadixTree()
    tree.insert(TOKENS, range(4))
    assert tree.match_prefix(values).length == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_an_integer_is_read_is_passed_on(tree, error):
    class Interrupted:
        def __index__(self):
            raise error

    with pytest.raises(error):
        tree.match_prefix([5, Interrupted()])
    with pytest.raises(error):
        tree.evict(Interrupted())


@pytest.mark.parametrize("protocol", ["__dlpack__", "__array_interface__"])
def test_a_protocol_that_fails_is_a_typed_error(tree, protocol):
    def fail(self):
        raise OSError("gone")

    broken = type("Broken", (), {protocol: property(fail)})()
    with pytest.raises(InvalidInputError, match="no readable memory: gone"):
        tree.match_prefix(broken)
    with pytest.raises(InvalidInputError, match="no readable memory: gone"):
        PrefixCache(8).begin([1], out=broken)


@pytest.mark.parametrize("wrong", [-1, 2**63, -(2**70)])
def test_counts_out_of_range_are_typed_errors(wrong):
    cache = PrefixCache(8)
    sequence = cache.begin([1])
    for call in (
        cache.tree.evict,
        cache.tree.compact,
        cache.evict,
        SlotPool(8).alloc,
        SlotPool,
        PrefixCache,
        RadixTree,
        sequence.reserve,
        sequence.commit,
        sequence.truncate,
        sequence.fork,
        lambda n: sequence.fork(1, at=n),
        lambda n: cache.tree.match_prefix([1]).write_slots(np.zeros(1, np.int32), start=n),
    ):
        with pytest.raises(InvalidInputError):
            call(wrong)
    cache.check()


@pytest.mark.parametrize("wrong", ["1", 1.0, None])
def test_counts_that_are_no_integers_are_type_errors(wrong):
    for call in (SlotPool(8).alloc, PrefixCache(8).tree.evict, PrefixCache(8).begin([1]).reserve):
        with pytest.raises(TypeError, match="num_tokens must be an integer"):
            call(wrong)


def test_counts_may_be_numpy_integers():
    assert len(SlotPool(np.int64(8)).alloc(np.int32(3))) == 3


@pytest.mark.parametrize("page_size", [0, 3, 2048, 6])
def test_page_sizes_are_powers_of_two_up_to_1024(page_size):
    for make in (lambda: RadixTree(page_size), lambda: SlotPool(6144, page_size)):
        with pytest.raises(InvalidInputError, match="page_size"):
            make()
    with pytest.raises(InvalidInputError):
        PrefixCache(6144, page_size)


@pytest.mark.parametrize("num_slots", [0, 15, 2**31, 2**40])
def test_num_slots_is_a_multiple_of_the_page(num_slots):
    for make in (SlotPool, PrefixCache):
        with pytest.raises(InvalidInputError, match="num_slots"):
            make(num_slots, 16)


def test_choices_are_checked():
    with pytest.raises(InvalidInputError, match="policy 'best'"):
        RadixTree(policy="best")
    with pytest.raises(InvalidInputError, match="policy 'best'"):
        PrefixCache(8, policy="best")
    with pytest.raises(InvalidInputError, match="atom"):
        RadixTree(atom="u16")
    with pytest.raises(InvalidInputError, match="compact_every"):
        RadixTree(compact_every=-1)
    with pytest.raises(TypeError):
        RadixTree(unknown=1)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_an_array_that_changes_during_the_call_gives_some_answer(dtype):
    """A writer without the interpreter lock scribbles over tokens that are being compared."""
    import threading

    tokens = np.arange(300_000, dtype=dtype)
    tree = RadixTree()
    tree.insert(tokens, np.arange(300_000, dtype=np.int32))
    done = threading.Event()

    def scribble():
        while not done.is_set():
            tokens[:] = np.random.default_rng(1).integers(-(2**31), 2**31, len(tokens))
            tokens[:] = np.arange(len(tokens))

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        for _ in range(30):
            assert 0 <= tree.match_prefix(tokens).length <= len(tokens)
    finally:
        done.set()
        writer.join()
    tree.check()
