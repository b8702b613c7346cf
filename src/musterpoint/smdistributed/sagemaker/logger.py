"""The library's logger."""

from __future__ import annotations

import logging
import os


def get_logger(name: str = "") -> logging.Logger:
    """The library's logger, or a child of it; its lines go to stderr unless the script configured logging otherwise."""
    logger = logging.getLogger("smdistributed.torch.sagemaker")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        handler.addFilter(lambda record: not logging.root.handlers)  # the script may configure logging later
        logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    return logger.getChild(name) if name else logger


def say(text: str, level: int = logging.INFO) -> None:
    """A line by rank 0."""
    if os.environ.get("RANK", "0") == "0":
        get_logger().log(level, text)
