"""Everything public is documented where `help()` finds it."""

from __future__ import annotations

import inspect

import pytest
import radix_rs
from radix_rs import _core, errors

# What needs an extra is documented in its own package.
CORE = [name for name in radix_rs.__all__ if name not in radix_rs._LAZY]
CLASSES = [name for name in CORE if inspect.isclass(getattr(radix_rs, name))]


@pytest.mark.parametrize("name", [name for name in CORE if name != "__version__"])
def test_public_names_have_a_docstring(name):
    assert (getattr(radix_rs, name).__doc__ or "").strip()


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_have_a_docstring(name):
    assert (getattr(errors, name).__doc__ or "").strip()


@pytest.mark.parametrize("name", CLASSES)
def test_public_members_have_a_docstring(name):
    members = [(n, m) for n, m in vars(getattr(radix_rs, name)).items() if not n.startswith("_")]
    assert [n for n, m in members if not (inspect.getdoc(m) or "").strip()] == []


@pytest.mark.parametrize(
    "name", [n for n in CLASSES if getattr(radix_rs, n).__module__ == "radix_rs._core"]
)
def test_methods_of_the_extension_have_a_signature(name):
    methods = [
        m for n, m in vars(getattr(_core, name)).items() if not n.startswith("_") and callable(m)
    ]
    for method in methods:
        inspect.signature(method)


def test_everything_the_extension_exports_is_public():
    exported = {n for n in dir(_core) if not n.startswith("_")}
    assert exported <= set(radix_rs.__all__)
