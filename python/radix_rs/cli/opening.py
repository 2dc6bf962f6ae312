"""Open an engine for a command."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import radix_rs
from radix_rs.errors import InvalidInputError

if TYPE_CHECKING:
    from radix_rs import LLM

# So many may be asked for even where there are fewer processors.
_THREADS = 64


@contextmanager
def open_llm(model: str | None, *, threads: int | None = None, **options: Any) -> Iterator[LLM]:
    """Load a model with everything below us kept quiet, and close it in the end.

    Parameters
    ----------
    model
        As for `radix_rs.LLM`.
    threads
        Threads that torch computes with on a CPU. None is one for the embedded model, which is so
        small that more of them mostly wait for each other, and torch's own choice for any other.
    options
        Other arguments of `radix_rs.LLM`.

    Raises
    ------
    ImportError
        If the extra ``engine`` is missing; the message names it.
    InvalidInputError
        If the model or an option is wrong, or the memory does not suffice.
    """
    make = radix_rs.LLM  # the first to be asked for: it names the extra if it is missing
    import torch
    from transformers.utils import logging

    if threads is not None and threads < 1:
        raise InvalidInputError(f"threads cannot be {threads}")
    most = max(_THREADS, os.cpu_count() or 1)
    if threads is not None and threads > most:
        raise InvalidInputError(f"threads cannot be {threads}: at most {most} are of use here")
    logging.set_verbosity_error()
    warnings.filterwarnings("ignore", module="transformers")
    before = torch.get_num_threads()
    torch.set_num_threads(threads or (1 if model is None else before))
    try:
        try:
            llm = make(model, **options)
        except (RuntimeError, MemoryError) as error:  # so torch says that memory is short
            reason = str(error).strip().split("\n")[0]
            raise InvalidInputError(f"cannot set up the model: {reason}") from error
        with llm:
            yield llm
    finally:
        torch.set_num_threads(before)
