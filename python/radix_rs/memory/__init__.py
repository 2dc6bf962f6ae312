"""Where K and V live: one pool of slots per layer, and how large it may be."""

from radix_rs.memory.budget import free_bytes, num_slots_for
from radix_rs.memory.dtypes import DTYPES, torch_dtype
from radix_rs.memory.pool import KVPool, LayerShape

__all__ = ["DTYPES", "KVPool", "LayerShape", "free_bytes", "num_slots_for", "torch_dtype"]
