"""Real servers with real jobs, asked by boto3 as any client would."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from musterpoint.serve import Server

from ..conftest import clean
from .jobs import Account


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """A server for all tests of a worker, whose jobs' names differ."""
    with Server(tmp_path_factory.mktemp("data"), max_jobs=3, environ=clean(os.environ)) as server:
        yield Account(server)
