"""Finds the job in a program that is wholly a launch of ours: the one-file launcher, ``muster launch``, ``muster
torchrun``. Its line is read as the job's, so nothing of ours runs below the job.
"""

import os
from typing import Any, Callable, Mapping, Sequence

from musterpoint.base import settings
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.code.program import is_own_file
from musterpoint.core.job.model import Job
from musterpoint.core.job.read import read_job

COMMANDS = ("launch", "torchrun")
_ON_ITS_OWN = "script"
"""The launcher by which somebody asked for the launch itself to be started, once per host."""

ReadLine = Callable[[str, Sequence[str], Mapping[str, str]], Any]
"""Gives the request that the words behind a command of :data:`COMMANDS` are, with variables. A UsageError: they are
wrong.
"""


class Unwrapped(NamedTuple):
    """The request of a ``line``, and options and job by it."""

    line: Any
    options: Settings
    job: Job


def unwrapped(
    job: Job, given: Mapping[str, Any], environ: Mapping[str, str], folder: str, read: ReadLine | None
) -> Unwrapped | None:
    """The launch that the program of ``job`` wholly is; None: it is something else.

    ``folder``: where the job's code is now; empty: not known yet, so only a command can be one. ``given``: the options
    of the command line by which the job was started.

    Raises:
        UsageError: the launch's line is wrong.
    """
    found = own_words(job, folder)
    if found is None or read is None or (job.started is not None and job.started.local_size > 1):
        return None
    line = read(*found, environ)
    names_launcher, given = "launcher" in line.given, {**given, **line.given}
    line, options = line._replace(given=given), settings.from_environ(line.environ, given)
    if options.launcher == _ON_ITS_OWN and not names_launcher:
        options = options._replace(launcher="auto")
    inner = read_job(line.environ, options, "", line.program, line.arguments, line.module)
    if folder:  # the job's directories are made
        inner = inner._replace(name=job.name, is_named=job.is_named, paths=job.paths)
    return unwrapped(inner, given, line.environ, folder, read) or Unwrapped(line, options, inner)


def own_words(job: Job, folder: str) -> tuple[str, Sequence[str]] | None:
    """The command of ours that a job's program is, and its words; None: it is none."""
    start, words = job.entry_point, job.arguments
    name, ending = os.path.splitext(os.path.basename(start.program))
    if start.program == "musterpoint" if start.module else (name == "muster" and not ending):
        return (words[0], words[1:]) if words[:1] and words[0] in COMMANDS else None
    if start.module or not folder or not is_own_file(os.path.join(folder, start.program)):
        return None
    if name in ("train", "muster", "muster_driver"):  # they read the platform's job
        return None
    return ("torchrun" if name == "torchrun" else "launch"), words
