"""A job's directories: SageMaker's in ``/opt/ml``; on platforms without any, those for a program's results.

``SM_MODEL_DIR`` and its kin name the latter, so a script that was made for SageMaker runs unchanged. A platform says
where they are; on machines of one's own it is below the working directory, where ``muster local`` puts its jobs. There
the reports get a directory, too: one for each host, since hosts may share the disk.
"""

from __future__ import annotations

import contextlib
import os
from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.posix import fcntl
from musterpoint.base.records import NamedTuple
from musterpoint.core.job import platforms
from musterpoint.core.job.hyperparameters import text_value
from musterpoint.core.job.model import Job, Paths
from musterpoint.core.job.opt_ml import VARIABLES, can_be_made

OWN = "muster-jobs"
NAMES: Mapping[str, str] = {"model": "model", "output_data": "output/data", "checkpoints": "checkpoints"}
"""The fields of :class:`Paths`, and the directories below the base."""
RESULTS = (*NAMES, "output", "output_intermediate")
"""The fields of all directories that a program writes to."""
REPORTS = ("failure", "success", "outcome.json", "timeline.json")
"""All that a host leaves in its own directory."""


def with_directories(job: Job, environ: Mapping[str, str], cwd: str) -> Paths:
    """The paths of ``job`` with a directory for each of :data:`NAMES`, and for its reports; nothing is made yet."""
    job = job._replace(paths=as_ranks_see(job.paths, environ, cwd))
    folder = platforms.load(job.platform).folder
    if folder is None:
        return job.paths
    missing = [field for field in NAMES if not getattr(job.paths, field)]
    own, there = os.path.join(cwd, OWN, _folder(job.name)), os.path.join(cwd, folder)
    base = there if folder and can_be_made(there) else own
    paths = job.paths._replace(**{field: os.path.join(base, NAMES[field]) for field in missing})
    if not folder and not paths.failure:
        reports = os.path.join(base, "hosts", _of_host(job, job.current_host))
        paths = paths._replace(failure=os.path.join(reports, "failure"), success=os.path.join(reports, "success"))
    return paths


def as_ranks_see(paths: Paths, environ: Mapping[str, str], cwd: str) -> Paths:
    """``paths`` with the directories that ``environ`` names: a rank sees those, whoever has set the variables."""
    named = {field: environ.get(VARIABLES[field], "") for field in RESULTS}
    there = {field: path for field, path in named.items() if path and "://" not in path}  # a URI is the program's
    return paths._replace(**{field: os.path.abspath(os.path.join(cwd, path)) for field, path in there.items()})


def locked(job: Job, name_is_given: bool) -> tuple[Job, tuple[int, ...], str]:
    """``job`` with a folder of its own among the :data:`OWN` ones; the descriptors that lock it while they are open;
    and what to say of it (empty: nothing).

    A job of one host that was given no name takes the next folder that no running job has: ``muster-jobs/train-2``.

    Raises:
        UsageError: a job that still runs has the folder.
    """
    place = os.path.join(job.paths.code, OWN, _folder(job.name))
    made_for = {field: path for field, path in job.paths._asdict().items() if path.startswith(place + os.sep)}
    if not made_for:
        return job, (), ""
    several = len(job.hosts) > 1
    of_hosts = {place: fcntl.LOCK_SH}  # of one job, which may share the disk
    if job.unnamed is None or job.unnamed.node_rank == 0:
        of_hosts[os.path.join(place, "hosts", _of_host(job, job.current_host))] = fcntl.LOCK_EX
    found, number = place, 1
    while True:
        try:
            locks = lock(of_hosts if several else {found: fcntl.LOCK_EX})
        except OSError:
            return job, (), ""  # it can't be made or locked
        if locks:
            paths = {field: found + path.removeprefix(place) for field, path in made_for.items()}
            said = f"{place} is in use by another job: this one's results go to {found}" if number > 1 else ""
            return job._replace(paths=job.paths._replace(**paths)), locks, said
        if name_is_given or several:
            raise UsageError(
                f"{found} is in use: a job of this name still runs here"
                f"{', or this host was started twice' if several else ''}; give another job another --job-name, or "
                "another working directory"
            )
        number += 1
        found = f"{place}-{number}"


def without_own(job: Job) -> Job:
    """``job`` without the folders that :func:`locked` would make."""
    return job._replace(paths=job.paths._replace(**dict.fromkeys((*NAMES, "failure", "success"), "")))


def lock(folders: Mapping[str, int]) -> tuple[int, ...]:
    """Makes ``folders`` and locks each in its way (of ``flock``), until the descriptors that are returned are closed.

    None are returned where another process has one of the locks.

    Raises:
        OSError: one can't be made, or its disk has no locks.
    """
    found: list[int] = []
    try:
        for folder, way in folders.items():
            os.makedirs(folder, exist_ok=True)
            found.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
            fcntl.flock(found[-1], way | fcntl.LOCK_NB)
    except OSError as error:
        for fd in found:
            os.close(fd)
        if not isinstance(error, BlockingIOError):
            raise
        return ()
    return tuple(found)


def in_use(folder: str) -> bool:
    """Tells whether a job that still runs has locked ``folder``."""
    if not os.path.isdir(folder):
        return False
    try:
        locks = lock({folder: fcntl.LOCK_EX})
    except (OSError, AttributeError):  # this system or its disk has no such locks
        return False
    for fd in locks:
        os.close(fd)
    return not locks


def forget_others(job: Job) -> None:
    """Removes the reports that hosts of earlier starts have left in the job's own directory, if this start has no such
    hosts: nobody will write them anew.
    """
    own = os.path.dirname(job.paths.failure)
    hosts = os.path.dirname(own)
    place = os.path.dirname(hosts)
    is_made_here = own.endswith(os.path.join(os.sep, "hosts", _of_host(job, job.current_host)))
    if job.paths.base or not is_made_here or os.path.basename(os.path.dirname(place)) != OWN:
        return
    here = {_of_host(job, host) for host in job.hosts}
    with contextlib.suppress(OSError):  # it couldn't be made
        for entry in os.scandir(hosts):
            if entry.name not in here and entry.is_dir(follow_symlinks=False):
                _forget(entry.path)


def _forget(path: str) -> None:
    """Removes a host's reports, and their directory if nothing else is in it; not while a host has its lock."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as locks:
        for fd in lock({path: fcntl.LOCK_EX}):
            locks.callback(os.close, fd)
            for name in REPORTS:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(path, name))
            os.rmdir(path)


def _of_host(job: Job, host: str) -> str:
    """The name of a host's directory: by its rank where the roll call names hosts. A machine may be called node-1."""
    return _folder(host if job.unnamed is None else host.replace("node-", "node-rank-", 1))


def is_own(path: str) -> bool:
    """Whether ``path`` is below the directory that musterpoint makes in the working directory."""
    return f"{os.sep}{OWN}{os.sep}" in path


def _folder(name: str) -> str:
    return "".join(mark if mark.isalnum() or mark in "-_." else "-" for mark in name).strip(".") or "job"


class Made(NamedTuple):
    """The ``job`` with the directories that are there. ``unset`` are the variables of those that can't be made, and
    ``why`` says it of each, and where nothing can be written; ``said`` is for the leader to say (empty: nothing).
    """

    job: Job
    said: str = ""
    unset: tuple[str, ...] = ()
    why: str = ""


def made(job: Job) -> Made:
    """``job`` with every directory made that a variable names, as far as they can be.

    Platforms make SageMaker's; a container that a person starts has none of them, and its program saves at its end.
    """
    new, missing, closed = [], {}, []
    for field in _to_make(job):
        path = getattr(job.paths, field)
        try:
            if not os.path.isdir(path):
                os.makedirs(path, exist_ok=True)  # another host of the job may share the disk
                new.append(path)
        except OSError as error:
            missing[field] = _why_not(error.filename or path, error)
        else:
            if field in RESULTS and not os.access(path, os.W_OK | os.X_OK):
                closed.append(f"{VARIABLES[field]} ({path})")
    gone = dict.fromkeys(missing, "")
    if gone and is_own(job.paths.failure):
        gone.update(failure="", success="")
    if not os.path.isdir(job.paths.input_config):
        gone["input_config"] = ""
    job = job._replace(paths=job.paths._replace(**gone))
    causes: dict[str, list[str]] = {}
    for field, cause in missing.items():
        causes.setdefault(cause, []).append(VARIABLES[field])
    not_set = ", ".join(f"{', '.join(names)} ({cause})" for cause, names in causes.items())
    parts = [f"not set: {not_set}"] if missing else []
    parts += [f"warning: nothing can be written to {', '.join(closed)}"] if closed else []
    unset = tuple(VARIABLES[field] for field in missing)
    return Made(job, "" if missing else _said(job, new), unset, "; ".join(parts))


def _why_not(path: str, error: OSError) -> str:
    if os.path.islink(path) and not os.path.exists(path):
        return f"{path} is a link to nothing"
    return (
        f"{path} is no directory" if os.path.lexists(path) and not os.path.isdir(path) else f"{path}: {error.strerror}"
    )


def _to_make(job: Job) -> list[str]:
    """The fields of the directories that are to be there: all, but for two whose being there says something.

    That with the configuration would make the next job on this machine look like SageMaker's. That of intermediate
    outputs, where a job names a place for them, says that the platform uploads it
    (:mod:`musterpoint.core.supervise.watchers.uploads`).
    """
    told = {"input_config"}
    if text_value(job.hyperparameters, "sagemaker_s3_output"):
        told.add("output_intermediate")
    return [field for field in VARIABLES if getattr(job.paths, field) and field not in told]


def _said(job: Job, new: list[str]) -> str:
    own = os.path.join(os.sep, OWN, _folder(job.name), "")
    place = next((path[: path.index(own) + len(own) - 1] for path in new if own in path), "")
    if not place:
        return ""
    try:
        with open(os.path.join(os.path.dirname(place), ".gitignore"), "x", encoding="utf-8") as file:
            file.write("*\n")
    except OSError:
        pass  # it is there, or git will show the directory
    variables = ", ".join(map(VARIABLES.__getitem__, NAMES))
    return f"{place} is for what the program leaves ({variables}), and for reports"
