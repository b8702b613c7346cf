"""Whether this host's intermediate outputs are ours to sync; what sagemaker-training's ``start_sync`` decides."""

from __future__ import annotations

import os
from typing import Mapping

from musterpoint.code.source import is_isolated
from musterpoint.errors import UsageError
from musterpoint.job.model import Job
from musterpoint.outputs.sync import Means, Place, Sync
from musterpoint.outputs.target import target_of


def sync_of(
    job: Job, environ: Mapping[str, str], interpreter: str, grace: float, means: Means, below_toolkit: bool
) -> Sync | None:
    """Makes the directory; None where nothing is to be synced. ``grace`` is seconds between SIGTERM and SIGKILL.

    A directory that is there already is the platform's, which syncs it; ``below_toolkit`` says that it may as well be
    sagemaker-training's, which started us.
    """
    directory, say = job.paths.output_intermediate, means.say
    try:
        target = target_of(job.hyperparameters, environ)
    except UsageError as error:
        say(f"warning: {error}; {directory} isn't synced")
        return None
    if target is None or not directory:
        return None
    if os.path.isdir(directory):
        if target.bucket and not below_toolkit:
            say(f"{directory} was there before the job: its sync to {target.place} is the platform's")
        return None
    try:
        os.makedirs(directory)
    except OSError as error:
        say(f"warning: {directory} can't be made: {error.strerror}; nothing goes to {target.place}")
        return None
    if not target.bucket:
        return None
    if is_isolated(job):
        say(f"{directory} isn't synced to {target.place}: the job has EnableNetworkIsolation, and so no network")
        return None
    return Sync(Place(directory, target, job.region, environ, interpreter, grace), means)
