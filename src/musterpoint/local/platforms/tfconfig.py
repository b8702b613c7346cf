"""TF_CONFIG: the pods of a TFJob called ``train`` with workers only."""

from __future__ import annotations

import json

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.platform import PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """The variable of one worker; alone it has none, as TFJob's controller leaves it out then."""
    workers = [f"{name}:2222" for name in host.job.hosts]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": host.rank}, "environment": "cloud"}
    return {"TF_CONFIG": json.dumps(config)} if len(workers) > 1 else {}


PLAYED = commands.launching(commands.called("train-worker-{}"), environment)
