"""What the kinds of jobs are called, and one word for kind and name: training and processing jobs may share a name.

A training job's key is its name; any other's is ``KIND/NAME``, as no name has a slash.
"""

from __future__ import annotations

TRAINING, PROCESSING = "training-job", "processing-job"
RUN = (TRAINING, PROCESSING)
"""The kinds whose jobs have hosts."""


def key_of(kind: str, name: str) -> str:
    return name if kind == TRAINING else f"{kind}/{name}"


def split_key(key: str) -> tuple[str, str]:
    """The kind and the name."""
    kind, slash, name = key.partition("/")
    return (kind, name) if slash else (TRAINING, key)
