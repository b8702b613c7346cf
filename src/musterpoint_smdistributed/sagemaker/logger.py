"""The library's logger."""

from __future__ import annotations

import importlib
import logging

_log = importlib.import_module("smdistributed.shared.log")


def get_logger(name: str = "") -> logging.Logger:
    """The library's logger, or a child of it; its lines go to stderr unless the script configured logging otherwise."""
    logger: logging.Logger = _log.ready(logging.getLogger("smdistributed.torch.sagemaker"))
    return logger.getChild(name) if name else logger


def say(text: str, level: int = logging.INFO) -> None:
    """A line by rank 0."""
    if _log.is_first():
        get_logger().log(level, text)
