"""The speed floor, short: it prints what `benchmarks/engine_floor.py` measures at length.

Times on shared cores are no test, so only a loss by half fails; tokens are counted exactly.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from radix_rs.model.source import EMBEDDED


@pytest.fixture(scope="module")
def engine_floor(repository: Path) -> ModuleType:
    path = repository / "benchmarks" / "engine_floor.py"
    spec = importlib.util.spec_from_file_location("engine_floor", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_decode_and_prefill_keep_up_with_transformers(engine_floor: ModuleType) -> None:
    rows = engine_floor.floor(str(EMBEDDED), "float32", repeats=3, steps=12)
    for row in rows:
        print(
            f"{row['case']}: {row['ratio_generate']:.2f} times as fast as generate, "
            f"{row['ratio_forward']:.2f} times as fast as a bare loop of forwards"
        )
        assert row["ratio_generate"] > 0.2
        assert row["ratio_forward"] > 0.2


def test_first_tokens_come_sooner_by_what_need_not_be_computed(engine_floor: ModuleType) -> None:
    gain = engine_floor.reuse(str(EMBEDDED), "float32", repeats=1)
    assert gain["computed_cold"] == 5 * (4096 + 256)
    assert gain["computed_warm"] == 4096 + 5 * 256
    print(f"{gain['gain']:.2f} times sooner, {gain['predicted']:.2f} predicted")
    assert gain["gain"] > 0.3 * gain["predicted"]
