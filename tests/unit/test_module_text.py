"""The text of our own modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.module_text import module_text


@pytest.mark.parametrize("module", ["supervise.agent", "supervise.rank_stub", "code.aws_reader", "outputs.uploader"])
def test_the_text_is_the_modules(root: Path, module: str) -> None:
    assert module_text(f"musterpoint.{module}") == (root / f"src/musterpoint/{module.replace('.', '/')}.py").read_text()


def test_a_module_that_is_missing_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"supervise/no_such\.py is missing from the package"):
        module_text("musterpoint.supervise.no_such")
