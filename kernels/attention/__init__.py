"""Triton kernels over a paged pool of keys and values.

Importing this package imports Triton (extra ``engine``, Linux); nothing below it in the house does.
On a machine without a GPU the kernels run in Triton's interpreter when ``TRITON_INTERPRET=1`` is in
the environment before Triton is imported: slow, and only meant for tests.
"""

from radix_rs.kernels.attention.store_kv import store_kv

__all__ = ["store_kv"]
