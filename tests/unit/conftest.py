"""What unit tests share: a network that is their process's own, and a loop for what waits in one."""

from __future__ import annotations

from typing import Generator, Iterator

import pytest

from musterpoint.loop import Loop

from ..own_network import own_network


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Every unit test with its fixtures: several runs and workers are on this machine, and ports have fixed numbers."""
    with own_network():
        result = yield
        return result


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()
