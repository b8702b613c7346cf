"""Loggers whose lines are seen, and which rank speaks for all."""

from __future__ import annotations

import logging
import os


def ready(logger: logging.Logger) -> logging.Logger:
    """``logger``; its lines go to stderr unless the script configured logging otherwise.

    Where nobody did, torch's users would see warnings without their source and no INFO at all.
    """
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        handler.addFilter(lambda record: not logging.root.handlers)  # the script may configure logging later
        logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    return logger


def is_first() -> bool:
    """Whether this is rank 0, which says what concerns all."""
    return os.environ.get("RANK", "0") == "0"
