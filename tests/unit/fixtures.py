"""Fixtures that tests of many rooms have."""

from __future__ import annotations

from contextlib import closing
from typing import Any, Callable, Iterator

import pytest


def closing_fixture(kind: Callable[..., Any], *needs: str) -> Any:
    """A fixture: one of ``kind``, made of the values of the fixtures that it needs, which is closed after the test."""

    @pytest.fixture
    def one(request: pytest.FixtureRequest) -> Iterator[Any]:
        with closing(kind(*map(request.getfixturevalue, needs))) as made:
            yield made

    return one
