"""What `scripts/house` counts, and who is over."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

HOUSE = Path(__file__).resolve().parents[2] / "scripts" / "house"
SOURCE = '''
class Ranks:
    """Which ranks are there, one by one, in a sentence of more than fourteen words, so that it runs on."""

    limit: int = 3
    """Of them."""

    def __init__(self):
        self.first, self.second = 1, 2
        self.first = other.third = 3
'''


@pytest.fixture
def house() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("house", str(HOUSE))
    spec = importlib.util.spec_from_loader("house", loader)
    assert spec is not None
    loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def test_what_a_class_has(house: ModuleType) -> None:
    (found,) = ast.parse(SOURCE).body
    first, second = house.documented(found)
    assert first.split()[0] in house.RIDDLES and second == "Of them."
    assert len(house.first_sentence(first).split()) > house.LONGEST_SENTENCE
    assert house.size_of(found) == (1, 2)


def test_rows_fall_and_are_held(house: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "CFG", tmp_path / "setup.cfg")
    house.CFG.write_text("[house]\ncore = 10 lines, 2 modules\nbase = 5 lines, 1 modules\n\n[other]\ncore = 99\n")
    counts = {"core": (8, 3)}
    assert [row for row, now in counts.items() if house.is_over(now, house.budget().get(row))] == ["core"]
    house.lower(house.budget(), counts)
    assert house.CFG.read_text() == "[house]\ncore = 8 lines, 2 modules\n\n[other]\ncore = 99\n"
