"""What the scheduler needs of a prefix cache; :class:`radix_rs.PrefixCache` has more."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class CacheSequence(Protocol):
    """One request's hold on the cache."""

    @property
    def cached_len(self) -> int:
        """Tokens whose K and V were there at the begin."""
        ...

    @property
    def num_tokens(self) -> int:
        """Tokens known: the prompt and what was appended."""
        ...

    @property
    def num_computed(self) -> int:
        """Tokens whose K and V exist."""
        ...

    @property
    def num_reserved(self) -> int:
        """Tokens that have a slot."""
        ...

    @property
    def num_published(self) -> int:
        """Tokens whose slots the tree owns."""
        ...

    @property
    def slots(self) -> NDArray[np.int32]:
        """One slot per position that has one, live."""
        ...

    def reserve(self, num_tokens: int) -> NDArray[np.int32]:
        """Take slots for more tokens."""
        ...

    def truncate(self, num_tokens: int) -> None:
        """Give back the slots beyond."""
        ...

    def append(self, tokens: Any) -> None:
        """Record new tokens."""
        ...

    def commit(self, num_computed: int) -> tuple[int, int]:
        """Tell that K and V exist up to here."""
        ...

    def finish(self) -> None:
        """Publish whole pages and let go."""
        ...

    def abort(self) -> None:
        """Let go."""
        ...


class _Tree(Protocol):
    @property
    def evictable_tokens(self) -> int: ...

    @property
    def protected_tokens(self) -> int: ...

    def match_prefix(self, tokens: Any, namespace: Any = None) -> Any: ...


class _Pool(Protocol):
    @property
    def num_free(self) -> int: ...


class Cache(Protocol):
    """The cache that sequences are begun in."""

    @property
    def tree(self) -> _Tree:
        """What is cached."""
        ...

    @property
    def pool(self) -> _Pool:
        """What is free."""
        ...

    def begin(self, tokens: Any, namespace: Any = None) -> CacheSequence:
        """Take the longest cached prefix of a request."""
        ...
