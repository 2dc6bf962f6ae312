"""Ours and the peers behind one set of verbs.

Each verb is the call that an engine makes, in the form that this tree's own engine hands it its
arrays: making those arrays is not timed, making the call's parameter objects is, since engines make
them for every call.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from radix_rs import RadixTree

Ints = NDArray[np.int32]


class Ours:
    """radix-rs."""

    name = "radix-rs"
    pages = (1, 16)
    max_leaves = 1_000_000
    evicts = True

    def __init__(self, page: int, num_tokens: int) -> None:
        self.tree = RadixTree(page)
        self.match = self.tree.match_prefix
        self.touch = self.tree.touch
        self.evict = self.tree.evict

    def key(self, tokens: Ints) -> Ints:
        return tokens

    def values(self, slots: Ints) -> Ints:
        return slots

    def length(self, key: Ints) -> int:
        return self.tree.match_prefix(key).length

    def match_slots(self, key: Ints) -> int:
        found = self.tree.match_prefix(key)
        return found.write_slots(self.row)

    def match_views(self, key: Ints) -> object:
        return self.tree.match_prefix(key).segments

    def insert(self, pair: tuple[Ints, Ints]) -> object:
        return self.tree.insert(pair[0], pair[1])

    def place(self, key: Ints) -> object:
        return self.tree.match_prefix(key).handle

    def lock_unlock(self, place: Any) -> None:
        self.tree.lock(place).release()

    def keep(self, key: Ints) -> object:
        return self.tree.lock_prefix(key)

    def cached(self) -> int:
        return self.tree.cached_tokens

    row = np.zeros(1 << 18, np.int32)


class _Allocator:
    """Takes slots back and does nothing with them: the tree alone is measured."""

    device = "cpu"

    def free(self, index: object) -> None: ...

    def free_segment(self, index: object, *, start_pos: int) -> None: ...

    def free_segments(self, segments: object) -> None: ...

    def free_group_begin(self) -> None: ...

    def free_group_end(self) -> None: ...

    def available_size(self) -> int:
        return 0

    def get_kvcache(self) -> None: ...


class _SGLang:
    """What the two generations of 0.5.23 have in common."""

    pages = (1, 16)
    evicts = True
    core: str | None = None
    allocator = _Allocator

    def __init__(self, page: int, num_tokens: int) -> None:
        import torch
        from sglang.srt.mem_cache.base_prefix_cache import (
            EvictParams,
            InsertParams,
            MatchPrefixParams,
        )
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

        self.torch = torch
        self.params = (RadixKey, MatchPrefixParams, InsertParams, EvictParams)
        options: dict[str, Any] = {
            "disable": False,
            "req_to_token_pool": None,
            "token_to_kv_pool_allocator": self.allocator(),
            "page_size": page,
        }
        if self.core is None:
            self.cache: Any = RadixCache(CacheInitParams(**options))
        else:
            from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
            from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

            self.cache = UnifiedRadixCache(
                CacheInitParams(
                    **options,
                    tree_components=(ComponentType.FULL,),
                    tree_core_backend=self.core,
                )
            )
            found = type(self.cache.tree_core).__name__
            if self.core not in found.lower():
                raise RuntimeError(f"the {self.core} core is not there, {found} is")

    def key(self, tokens: Ints) -> array:
        return array("q", tokens.astype(np.int64).tobytes())

    def values(self, slots: Ints) -> Any:
        return self.torch.from_numpy(slots.astype(np.int64))

    def match(self, key: array) -> Any:
        radix_key, match_params, _, _ = self.params
        return self.cache.match_prefix(match_params(key=radix_key(key)))

    def touch(self, key: array) -> None:
        self.match(key)

    def length(self, key: array) -> int:
        return self.match(key).device_prefix_len

    def match_slots(self, key: array) -> Any:
        return self.cache.path_device_indices(self.match(key).last_device_node)

    def insert(self, pair: tuple[array, Any]) -> Any:
        radix_key, _, insert_params, _ = self.params
        return self.cache.insert(insert_params(key=radix_key(pair[0]), value=pair[1]))

    def place(self, key: array) -> Any:
        return self.match(key).last_device_node

    def lock_unlock(self, place: Any) -> None:
        cache = self.cache
        cache.unlock(cache.lock(place))

    def keep(self, key: array) -> Any:
        return self.cache.lock(self.place(key))

    def evict(self, num_tokens: int) -> Any:
        return self.cache.evict(self.params[3](num_tokens=num_tokens))

    def cached(self) -> int:
        return self.cache.evictable_size() + self.cache.protected_size()


class SGLangRust(_SGLang):
    """The default of 0.5.23: UnifiedRadixCache over its core in Rust."""

    name = "SGLang Rust"
    core = "rust"
    max_leaves = 100_000


class SGLangPython(_SGLang):
    """RadixCache of 0.5.23, in Python."""

    name = "SGLang Python"
    max_leaves = 10_000


class SGLangCpp:
    """The experimental tree in C++ of wheels up to 0.5.10, compiled here."""

    name = "SGLang C++"
    pages = (1, 16)
    evicts = True
    max_leaves = 10_000
    module: Any = None

    def __init__(self, page: int, num_tokens: int) -> None:
        import torch

        self.torch = torch
        self.tree = self.load().RadixTree(False, None, page, 0)

    @classmethod
    def load(cls) -> Any:
        """Compile it, once for each environment."""
        if cls.module is None:
            import torch  # noqa: F401 (the extension needs its libraries)
            from torch.utils import cpp_extension

            folder = _site() / "sglang_cpp_tree"
            build = folder / "build"
            build.mkdir(exist_ok=True, parents=True)
            # Its builder looks for ninja on the path, which is that of the environment.
            os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            names = ("tree_v2_binding.cpp", "tree_v2_debug.cpp", "tree_v2.cpp")
            cls.module = cpp_extension.load(
                name="radix_tree_cpp",
                sources=[str(folder / name) for name in names],
                extra_cflags=["-O3", "-std=c++20"],
                build_directory=str(build),
            )
        return cls.module

    def key(self, tokens: Ints) -> list[int]:
        return tokens.tolist()

    def values(self, slots: Ints) -> Any:
        return self.torch.from_numpy(slots.astype(np.int64))

    def match(self, key: list[int]) -> Any:
        return self.tree.match_prefix(key)

    def touch(self, key: list[int]) -> None:
        self.tree.match_prefix(key)

    def length(self, key: list[int]) -> int:
        return sum(len(part) for part in self.tree.match_prefix(key)[0])

    def match_slots(self, key: list[int]) -> Any:
        return self.torch.cat(self.tree.match_prefix(key)[0])

    def insert(self, pair: tuple[list[int], Any]) -> Any:
        return self.tree.writing_through(pair[0], pair[1])

    def place(self, key: list[int]) -> Any:
        return self.tree.match_prefix(key)[2]

    def lock_unlock(self, place: Any) -> None:
        self.tree.lock_ref(place, True)
        self.tree.lock_ref(place, False)

    def evict(self, num_tokens: int) -> Any:
        return self.tree.evict(num_tokens)

    def cached(self) -> int:
        return self.tree.evictable_size() + self.tree.protected_size()


class Vllm:
    """vLLM's prefix cache: chained hashes of blocks, and its pool of blocks."""

    name = "vLLM"
    pages = (16,)
    evicts = True
    max_leaves = 10_000

    def __init__(self, page: int, num_tokens: int) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.block_pool import BlockPool

        kv_cache_utils.init_none_hash(sha256)
        self.hash_block, self.hasher, self.page = kv_cache_utils.hash_block_tokens, sha256, page
        # One block of every pool is nobody's.
        self.pool = BlockPool(num_tokens // page + 1, True, page)
        self.taken: list[Any] = []

    def key(self, tokens: Ints) -> list[int]:
        return tokens.tolist()

    def values(self, slots: Ints) -> None:
        return None

    def hashes(self, key: list[int]) -> list[Any]:
        page, last, made = self.page, None, []
        for at in range(0, len(key) - page + 1, page):
            last = self.hash_block(self.hasher, last, key[at : at + page], None)
            made.append(last)
        return made

    def find(self, hashes: list[Any]) -> list[Any]:
        blocks = []
        for one in hashes:
            if not (found := self.pool.get_cached_block(one, [0])):
                break
            blocks.append(found[0])
        return blocks

    def match(self, key: list[int]) -> list[Any]:
        return self.find(self.hashes(key))

    def touch(self, key: list[int]) -> None:
        self.lock_unlock(self.match(key))

    def length(self, key: list[int]) -> int:
        return len(self.match(key)) * self.page

    def match_slots(self, key: list[int]) -> list[int]:
        return [block.block_id for block in self.match(key)]

    def insert(self, pair: tuple[list[int], None]) -> None:
        if self.taken:
            self.pool.free_blocks(self.taken)
            self.taken = []
        hashes = self.hashes(pair[0])
        blocks = self.find(hashes)
        known = len(blocks)
        self.pool.touch(blocks)
        blocks += self.pool.get_new_blocks(len(hashes) - known)
        request: Any = _HashedRequest(hashes)
        self.pool.cache_full_blocks(request, blocks, known, len(hashes), self.page, 0)
        self.pool.free_blocks(reversed(blocks))

    def place(self, key: list[int]) -> list[Any]:
        return self.match(key)

    def lock_unlock(self, place: list[Any]) -> None:
        self.pool.touch(place)
        self.pool.free_blocks(reversed(place))

    def evict(self, num_tokens: int) -> None:
        # Blocks are evicted as they are handed out; given back at once, the same would go again.
        self.taken += self.pool.get_new_blocks(num_tokens // self.page)

    def cached(self) -> int:
        return len(self.pool.cached_block_hash_to_block) * self.page


class _HashedRequest:
    def __init__(self, block_hashes: list[Any]) -> None:
        self.request_id, self.block_hashes = "0", block_hashes


class Dynamo:
    """The router's index of Dynamo, by its binding: who holds which blocks. It has no slots."""

    name = "Dynamo"
    pages = (16,)
    evicts = False  # it is told what others evict
    max_leaves = 10_000

    def __init__(self, page: int, num_tokens: int) -> None:
        from dynamo._core import RadixTree as Index
        from dynamo._core import compute_block_hash_for_seq

        self.index, self.hashes, self.page = Index(), compute_block_hash_for_seq, page
        self.find = self.index.find_matches

    def key(self, tokens: Ints) -> list[int]:
        return tokens.tolist()

    def values(self, slots: Ints) -> None:
        return None

    def match(self, key: list[int]) -> Any:
        return self.find(self.hashes(key, self.page))

    def length(self, key: list[int]) -> int:
        return max(self.match(key).scores.values(), default=0) * self.page

    def insert(self, pair: tuple[list[int], None]) -> None:
        # An event names a block by any number; here it is that of its content and place.
        last, blocks = 0, []
        for content in self.hashes(pair[0], self.page):
            last = hash((last, content)) & ((1 << 63) - 1)
            blocks.append({"block_hash": last, "tokens_hash": content})
        stored = {"parent_hash": None, "blocks": blocks}
        event = {"event_id": 0, "data": {"stored": stored}, "dp_rank": 0}
        self.index.apply_event(0, json.dumps(event).encode())


CONTENDERS: list[Any] = [Ours, SGLangRust, SGLangPython, SGLangCpp, Vllm, Dynamo]


def _site() -> Path:
    return Path(np.__file__).resolve().parents[1]


def absent() -> dict[str, str]:
    """Return why peers are missing, as far as their installation said so."""
    report = Path(sys.prefix) / "absent.json"
    return json.loads(report.read_text()) if report.exists() else {}


def there(say: Callable[[str], None], only: list[str] | None = None) -> list[Any]:
    """Return the contenders that can be made here and find what they were given."""
    warnings.simplefilter("ignore")
    why = absent()
    found = []
    tokens = np.arange(64, dtype=np.int32)
    for kind in CONTENDERS:
        if only and kind is not Ours and kind.name not in only:
            continue
        try:
            one = kind(kind.pages[-1], 1024)
            key = one.key(tokens)
            one.insert((key, one.values(tokens.copy())))
            if (length := one.length(key)) != len(tokens):
                raise RuntimeError(f"{len(tokens)} tokens were stored, {length} are found")
        except Exception as error:
            reason = why.get(kind.name) or f"{type(error).__name__}: {error}"
            say(f"absent: {kind.name}: {reason.splitlines()[0]}")
            continue
        found.append(kind)
    return found
