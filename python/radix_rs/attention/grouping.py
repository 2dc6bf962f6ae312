"""Which requests of a step are computed together: decisions on lengths, no tensors."""

from __future__ import annotations

from collections.abc import Sequence

# Up to here an extend is padded into a group: one call for many beats many small calls.
SMALL_ROWS = 64
SMALL_SCORES = 32_768
# A group may hold this many padded tokens for nothing, and half as many again as it needs.
FREE_PADDING = 1_024
PADDING_RATIO = 1.5
# From so many bytes of K on, a decode over consecutive slots gets a call of its own: that costs
# about 15 microseconds, and a gather into the group as much per 64 KiB of K and V.
RUN_BYTES = 32_768
# With several threads the bar rises by once its height for each so many decodes of a step.
MANY_DECODES = 8


def is_small(q_len: int, kv_len: int) -> bool:
    """Tell whether a request is so small that it is computed in a padded group."""
    return q_len == 1 or (q_len <= SMALL_ROWS and q_len * kv_len <= SMALL_SCORES)


def pack(members: Sequence[int], q_lens: Sequence[int], kv_lens: Sequence[int]) -> list[list[int]]:
    """Split requests into groups that waste little when padded to their longest member.

    Parameters
    ----------
    members
        Indices of the requests to be packed.
    q_lens, kv_lens
        New and visible tokens of every request of the batch.

    Returns
    -------
    list of list of int
        The groups. Without much waste there is one, in the order of ``members``.
    """
    if not members:
        return []
    if _fits(members, q_lens, kv_lens):
        return [list(members)]
    groups: list[list[int]] = []
    for member in sorted(members, key=lambda i: (q_lens[i] > 1, kv_lens[i], i)):
        group = groups[-1] if groups else None
        if group is not None and _fits([*group, member], q_lens, kv_lens):
            group.append(member)
        else:
            groups.append([member])
    return groups


def _fits(group: Sequence[int], q_lens: Sequence[int], kv_lens: Sequence[int]) -> bool:
    kv = [kv_lens[i] for i in group]
    if max(kv) * len(kv) > PADDING_RATIO * sum(kv) + FREE_PADDING:
        return False
    q = [q_lens[i] for i in group]
    # A decode next to an extend would be padded with whole rows of scores.
    return min(q) == max(q) or (min(q) > 1 and max(q) * len(q) <= PADDING_RATIO * sum(q) + 64)
