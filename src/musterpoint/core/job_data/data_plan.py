"""What of a job's data is to be brought, kept and sent, as its options say. Nothing is read or made yet."""

import os
from typing import Any, Iterator, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.data.moves import Target, Which
from musterpoint.core.data.places import Channel, Share, is_path, place_of, read_channel
from musterpoint.core.job.model import Channel as JobChannel
from musterpoint.core.job.model import Job

FILES = ";files"


class Upload(NamedTuple):
    """Where results go, and whether as files; else as archives."""

    uri: str
    as_files: bool


class DataPlan(NamedTuple):
    """``channels`` with the directory of each. ``target``: where checkpoints are kept; None: nowhere. ``which``: the
    files that a host gets of one. ``directory``: of the checkpoints on this host. ``share``: which host of the group
    this is.
    """

    channels: tuple[tuple[Channel, str], ...]
    target: Target | None
    which: Which
    directory: str
    upload: Upload | None
    share: Share


def plan_data(job: Job, options: Settings, cwd: str) -> DataPlan:
    """The plan for this host.

    Raises:
        UsageError: an option is wrong, or contradicts what the platform does.
    """
    channels = tuple(read_channel(line, cwd) for line in options.channel.splitlines())
    names = [channel.name for channel in channels] + [channel.name for channel in job.channels]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"--channel {twice[0]}=...: this job has a channel of that name already: use another one")
    target = None
    if options.checkpoints:
        uri = place_of(options.checkpoints, cwd, f"--checkpoints={options.checkpoints}")
        _check_platform(job, uri)
        if not job.paths.checkpoints:
            raise UsageError("--checkpoints: this job has no directory for checkpoints (SM_CHECKPOINT_DIR)")
        if not job.is_named:
            raise UsageError(
                f"--checkpoints={uri}: two programs called {job.name} are not one job: say by --job-name whose "
                "checkpoints these are; a later start with the same name goes on from them"
            )
        _check_apart(f"--checkpoints={options.checkpoints}", uri, {"SM_CHECKPOINT_DIR": job.paths.checkpoints})
        marks = tuple(filter(None, (mark.strip() for mark in options.checkpoint_complete.split(","))))
        target = Target(uri, job.name, options.checkpoint_keep, marks)
    elif options.checkpoint_complete:
        raise UsageError("--checkpoint-complete without --checkpoints has nothing to look for: give both, or neither")
    upload = None
    if options.upload:
        uri = options.upload.removesuffix(FILES)
        upload = Upload(place_of(uri, cwd, f"--upload={options.upload}"), uri != options.upload)
        sent = {"SM_MODEL_DIR": job.paths.model, "SM_OUTPUT_DATA_DIR": job.paths.output_data}
        if target is not None:  # a restore moves away what is no checkpoint
            sent["SM_CHECKPOINT_DIR"] = job.paths.checkpoints
        _check_apart(f"--upload={options.upload}", upload.uri, sent)
    folder = job.paths.input_data or os.path.join(_base(job), "hosts", job.current_host, "input", "data")
    hosts = job.group_hosts if job.trains else job.hosts
    return DataPlan(
        tuple((channel, os.path.join(folder, channel.name)) for channel in channels),
        target,
        options.checkpoint_restore,
        job.paths.checkpoints,
        upload,
        Share(hosts.index(job.current_host), len(hosts)),
    )


def _check_apart(where: str, place: str, directories: Mapping[str, str]) -> None:
    """Raises where a directory that is sent lies in the place that it is sent to, or the place in it."""
    if not is_path(place):
        return
    there = os.path.realpath(place)
    for variable, directory in directories.items():
        here = os.path.realpath(directory) if directory else ""
        if here and os.path.commonpath((here, there)) in (here, there):
            raise UsageError(
                f"{where}: {there} and {variable} ({here}) lie in each other: what is sent would be sent again; name "
                "a place apart from it"
            )


def _base(job: Job) -> str:
    """The directory of what a job leaves, where the platform has none for its input."""
    return os.path.dirname(job.paths.checkpoints) or os.path.join(os.getcwd(), "muster-jobs", job.name or "job")


def with_channels(job: Job, plan: DataPlan) -> Job:
    """``job`` with the channels that are brought."""
    more = tuple(
        JobChannel(channel.name, "File", path, {"TrainingInputMode": "File"}) for channel, path in plan.channels
    )
    return job._replace(channels=(*job.channels, *more)) if more else job


def _check_platform(job: Job, uri: str) -> None:
    """Raises where SageMaker's agent keeps checkpoints at the same place."""
    for place in _places(job.files):
        one, other = f"{place.rstrip('/')}/", f"{uri.rstrip('/')}/"
        if one.startswith(other) or other.startswith(one):
            raise UsageError(
                f"--checkpoints={uri}: the job's CheckpointConfig has SageMaker keep checkpoints at {place}: leave one "
                "of the two out, or name another place"
            )


def _places(files: dict[str, Any]) -> Iterator[str]:
    found = [files.get("checkpointconfig.json")]
    found += [each.get("CheckpointConfig") for each in files.values() if isinstance(each, dict)]
    for each in found:
        if isinstance(each, dict) and isinstance(each.get("S3Uri"), str) and each["S3Uri"]:
            yield each["S3Uri"]
