"""The reader where there is no platform: one host, this one."""

from __future__ import annotations

import os

from musterpoint.job.model import EntryPoint, Job


def read_plain(host: str = "") -> Job:
    """A job of one host, with no program yet. ``host`` is its name; the machine's own if empty."""
    name = host or _node_name()
    return Job(
        platform="plain", name="", hosts=(name,), current_host=name, group_hosts=(name,), entry_point=EntryPoint("")
    )


def _node_name() -> str:
    """This machine's own name (Windows has no ``uname``)."""
    return (os.uname().nodename if hasattr(os, "uname") else "") or "localhost"
