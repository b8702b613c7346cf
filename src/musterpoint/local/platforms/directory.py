"""The working directory of a host on platforms that run a command in the user's code."""

from __future__ import annotations

import os

from musterpoint.local.job import LocalJob
from musterpoint.local.tree import Layout


def working_directory(layout: Layout, host: str) -> str:
    """Where the command of ``host`` runs."""
    return os.path.join(layout.host(host), "wd")


def prepare(job: LocalJob, host: str, layout: Layout, own: tuple[str, ...] = ()) -> None:
    """Makes the working directory: links to what the source directory has, so that the host can write beside them.

    ``own``: directories of the host's own there. What they are called in the source directory is left out.
    """
    folder = working_directory(layout, host)
    for name in own or (".",):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    for directory in (layout.tree(host), layout.ranks(host)):
        os.makedirs(directory, exist_ok=True)
    for name in sorted(os.listdir(job.source_dir)):
        path = os.path.join(job.source_dir, name)
        if name not in own and not layout.output.startswith(os.path.join(path, "")):
            os.symlink(path, os.path.join(folder, name))
