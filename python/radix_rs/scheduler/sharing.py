"""Of several requests with a common uncached prefix one goes first, the others wait for it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from radix_rs.scheduler.request import Request, Status, Tokens

# Below, computing a prefix twice costs less than waiting a step for it.
MIN_SHARED = 16


def common_prefix(a: Tokens, b: Tokens) -> int:
    """Return the number of leading tokens that are equal."""
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    first = int(np.argmax(differs)) if length else 0
    return first if length and differs[first] else length


def leader_of(
    request: Request, matched: int, running: Iterable[Request], page_size: int
) -> tuple[Request, int] | None:
    """Return a running request that is about to compute a prefix of this one, if any.

    Parameters
    ----------
    request
        The request that could be admitted.
    matched
        Tokens of it that are cached already.
    running
        Requests that are admitted.
    page_size
        Tokens per page; only whole pages are shared.

    Returns
    -------
    tuple or None
        The request to wait for, and how many tokens it must have computed first.
    """
    tokens = request.tokens
    for other in running:
        if other.namespace != request.namespace or other.num_computed >= other.num_tokens - 1:
            continue  # it decodes: what it has of a prompt is there already
        # The last token is always computed, since its logits are needed.
        shared = min(common_prefix(tokens, other.tokens), len(tokens) - 1)
        shared -= shared % page_size
        if shared - matched >= MIN_SHARED and other.num_computed < shared:
            return other, shared
    return None


def must_wait(request: Request) -> bool:
    """Tell whether the request that this one waits for is still on its way."""
    if request.waits_for is None:
        return False
    leader, length = request.waits_for
    if leader.status is Status.RUNNING and leader.num_computed < length:
        return True
    request.waits_for = None
    return False
