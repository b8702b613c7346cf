"""What unit tests share: a network that is their process's own, and a loop for what waits in one."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Generator, Iterator

import pytest

from musterpoint.base.loop import Loop

from ..own_network import own_network

HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Every unit test with its fixtures: several runs and workers are on this machine, and ports have fixed numbers.

    Pytest asks this for all tests of a run that has unit tests; the others need the machine's network.
    """
    with own_network() if item.path.is_relative_to(HERE) else nullcontext():
        result = yield
        return result


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()
