"""Attention over slots: what a batch looks like, and the backends that compute it."""

from radix_rs.attention.base import AttentionBackend, AttentionLayer
from radix_rs.attention.factory import BACKENDS, make_backend
from radix_rs.attention.metadata import BatchMetadata, Span

__all__ = [
    "BACKENDS",
    "AttentionBackend",
    "AttentionLayer",
    "BatchMetadata",
    "Span",
    "make_backend",
]
