"""What unit tests share: a loop for what waits in one."""

from __future__ import annotations

from typing import Iterator

import pytest

from musterpoint.base.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()
