"""Times parts of a script."""

from __future__ import annotations

import contextlib
import time
from typing import Iterator

from ..logger import get_logger


@contextlib.contextmanager
def timeit(condition: bool = True, msg: str = "", rank: int | None = None) -> Iterator[None]:
    """Says how long what is inside took, where ``condition`` and ``rank``, this rank's own, is 0 or None."""
    began = time.perf_counter()
    yield
    if condition and not rank:
        get_logger().info("%s: %.2f s", msg, time.perf_counter() - began)
