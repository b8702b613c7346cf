"""Turns errors of a command into a message and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from typing import Callable

from musterpoint.base import exit_codes
from musterpoint.base.console import Console
from musterpoint.base.errors import MusterError, UsageError
from musterpoint.base.failure import Failure, failure_of_error
from musterpoint.base.masking import Masker
from musterpoint.base.posix import resource
from musterpoint.core.job.read import masker_of_files, working_directory
from musterpoint.core.processes.received_signals import hear_all


def guarded(
    command: Callable[[], int], report: Callable[[Failure], object] = lambda failure: None, anywhere: bool = False
) -> int:
    """The exit code of ``command``. An error is printed as one sentence on stderr and passed to ``report``.

    ``anywhere``: the command needs no working directory.
    """
    hear_all()
    try:
        if not anywhere:
            working_directory()
        return command()
    except MusterError as error:
        _console().say(str(error))
        report(_failure_of(error))
        return error.code
    except KeyboardInterrupt:
        return exit_codes.of_signal(2)
    except BrokenPipeError:
        # the reader has gone (muster plan | head): drop what is still buffered
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            error = UsageError(_no_descriptors())
            _console().say(str(error))
            report(_failure_of(error))
            return error.code
        failure = _failure_of(error)
        _console().say(failure.reason)
        report(failure)
        return exit_codes.INTERNAL


def _no_descriptors() -> str:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"no file descriptor is left: this process may have {most} (ulimit -n), and needs more: try ulimit -n 4096"


def _failure_of(error: Exception) -> Failure:
    return failure_of_error(error, os.environ.get("SM_CURRENT_HOST", ""), _masker().mask)


def _console() -> Console:
    return Console(_masker().mask)


def _masker() -> Masker:
    """A masker of the secrets in the environment, the command line and this job's files."""
    return masker_of_files(os.environ, sys.argv[1:])
