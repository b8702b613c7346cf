"""What tests of everything that waits in a loop share."""

from __future__ import annotations

from typing import Iterator

import pytest

from musterpoint.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()
