"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import inspect

import pytest
import radix_rs

CLASSES = [
    name
    for name in radix_rs.__all__
    if name not in radix_rs._LAZY and inspect.isclass(getattr(radix_rs, name))
]


@pytest.mark.parametrize("name", CLASSES)
def test_examples_run(name):
    kind = getattr(radix_rs, name)
    documented = [(name, kind)]
    documented += [(f"{name}.{n}", m) for n, m in vars(kind).items() if not n.startswith("_")]
    names = {n: getattr(radix_rs, n) for n in radix_rs.__all__ if n not in radix_rs._LAZY}
    for title, thing in documented:
        text = inspect.getdoc(thing) or ""
        test = doctest.DocTestParser().get_doctest(text, dict(names), title, None, 0)
        outcome = doctest.DocTestRunner().run(test)
        assert outcome.failed == 0, title


MAIN = (
    "RadixTree", "SlotPool", "PrefixCache", "Sequence", "Lease", "Match", "Handle", "Fence",
    "EventLog",
)  # fmt: skip


@pytest.mark.parametrize("name", MAIN)
def test_the_main_classes_have_an_example(name):
    assert ">>>" in getattr(radix_rs, name).__doc__
