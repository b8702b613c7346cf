"""The library's logger: what concerns all ranks is said by rank 0 alone."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger("smdistributed.modelparallel")


def get_logger(name: str = "") -> logging.Logger:
    """The library's logger, or a child of it; its lines go to stderr unless the script configured logging otherwise."""
    return logger.getChild(name) if name else logger


def say(text: str) -> None:
    """An INFO line by rank 0."""
    if _first():
        _ready().info(text)


def warn(text: str) -> None:
    """A WARNING by rank 0."""
    if _first():
        _ready().warning(text)


def _first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _ready() -> logging.Logger:
    """Where nobody configured logging, torch's users would see warnings without their source and no INFO at all."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    return logger
