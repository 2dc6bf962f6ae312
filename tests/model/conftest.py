"""What tests of the model loop share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from radix_rs import LLM
from radix_rs.model.source import EMBEDDED


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    # On shared cores threads of tiny operations wait for each other for most of their time.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", autouse=True)
def _embedded_model() -> None:
    if not (EMBEDDED / "config.json").is_file():
        pytest.skip("the embedded model has not been trained yet")


@pytest.fixture(scope="session")
def shared_llm() -> Iterator[LLM]:
    """An engine that tests may use which do not count on an empty cache."""
    with LLM(dtype="float32", num_slots=4096) as llm:
        yield llm


@pytest.fixture
def llm(shared_llm: LLM) -> Iterator[LLM]:
    """The same engine with an empty cache; afterwards it must hold nothing but cached tokens."""
    shared_llm.cache.reset()
    yield shared_llm
    shared_llm.cache.check()
    stats = shared_llm.cache.stats()
    assert stats["num_free"] + stats["cached_tokens"] == stats["num_slots"]
    assert stats["protected_tokens"] == 0
    assert stats["num_sequences"] == 0
