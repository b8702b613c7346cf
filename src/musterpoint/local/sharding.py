"""Channels whose files are shared out among the hosts, as SageMaker does with ``ShardedByS3Key``.

Each of n hosts gets about one in n of the objects (AWS, API reference of ``S3DataSource``); which ones AWS doesn't say.
Here it is every n-th in the order of their names.
"""

from __future__ import annotations

import os


def shard(path: str, place: int, hosts: int) -> list[str]:
    """The files below the directory ``path`` that the host at ``place`` of ``hosts`` gets, relative to ``path``."""
    files = [
        os.path.relpath(os.path.join(folder, name), path) for folder, _folders, names in os.walk(path) for name in names
    ]
    return sorted(files)[place::hosts]
