"""What `scripts/test` names is there: a path that was renamed would be run, or left out, without a word. And
docs/versions.md names the versions that the tests use.
"""

from __future__ import annotations

import importlib.util
import re
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


@pytest.mark.parametrize("which", ["SLOW_UNITS", "OF_ANY_PYTHON", "NOT_NEWER"])
def test_what_is_left_out_exists(script: ModuleType, which: str) -> None:
    for name in getattr(script, which):
        path, _, test = name.partition("::")
        assert (ROOT / "tests/unit" / path).exists(), name
        assert not test or f"def {test}(" in (ROOT / "tests/unit" / path).read_text(), name


def test_what_newer_interpreters_run_exists(script: ModuleType) -> None:
    assert [path for path in script.NEWER if not (ROOT / path).exists()] == []


def test_tests_that_need_stacks_exist(script: ModuleType) -> None:
    assert [start for start in script.NEEDS if not list(ROOT.glob(f"{start}*"))] == []


def test_the_stages_that_take_minutes_are_of_those_that_tests_need(script: ModuleType) -> None:
    assert set(script.LONGEST) <= {stage for stages in script.NEEDS.values() for stage in stages}


def row(name: str) -> list[str]:
    """The cells of a row of the table of versions."""
    lines = (ROOT / "docs" / "versions.md").read_text().split("\n")
    (line,) = (line for line in lines if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def version(distribution: str) -> str:
    """What the environments of the tests pin it to, without a last ``.*``."""
    texts = [(ROOT / "scripts" / name).read_text() for name in ("constraints.txt", "stacks.py", "bases.py")]
    found = re.search(rf"\b{distribution}==([\d.]+[\d])", "\n".join(texts))
    assert found is not None, distribution
    return found[1]


def test_the_table_of_versions_has_those_of_the_tests() -> None:
    assert row("torch")[1] == version("torch")
    assert row("TensorFlow")[1].startswith(f"{version('tensorflow')},")
    assert f"; {version('tensorflow-cpu').rpartition('.')[0]} for Horovod" in row("TensorFlow")[1]
    flavours = re.findall(r'flavour\("[\w-]+", "([\w ]+?)\.?"', (ROOT / "scripts" / "stacks.py").read_text())
    assert len(flavours) == 5
    for flavour in flavours:
        name, _, number = flavour.rpartition(" ")
        assert re.search(rf"{name} (?:\d+ and )?{number}\b", row("MPI")[1]), flavour


def test_what_tries_a_version_is_there() -> None:
    text = (ROOT / "docs" / "versions.md").read_text()
    named = re.findall(r"\]\(\.\./((?:tests|scripts)/[\w/.]+)\)", text)
    assert len(named) >= 6
    assert [path for path in named if not (ROOT / path).exists()] == []
