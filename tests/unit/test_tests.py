"""What `scripts/test` names is there: a path that was renamed would be run, or left out, without a word."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = str(ROOT / "scripts" / "test")
    sys.path.insert(0, str(ROOT / "scripts"))
    loader = SourceFileLoader("muster_scripts_test", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_what_a_quick_run_leaves_out_exists(script: ModuleType) -> None:
    assert [name for name in script.SLOW_UNITS if not (ROOT / "tests/unit" / name).exists()] == []


def test_what_newer_interpreters_run_exists(script: ModuleType) -> None:
    assert [path for path in script.NEWER if not (ROOT / path).exists()] == []


def test_tests_that_need_stacks_exist(script: ModuleType) -> None:
    assert [start for start in script.NEEDS if not list(ROOT.glob(f"{start}*"))] == []


def test_the_stages_that_take_minutes_are_of_those_that_tests_need(script: ModuleType) -> None:
    assert set(script.LONGEST) <= {stage for stages in script.NEEDS.values() for stage in stages}
