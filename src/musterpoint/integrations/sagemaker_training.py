"""Lets an image that starts the ``train`` of sagemaker-training run its jobs under musterpoint.

That toolkit imports the module that ``SAGEMAKER_TRAINING_MODULE`` names and calls the function behind the colon
(``sagemaker_training/trainer.py``, read at 5.1.4)::

    SAGEMAKER_TRAINING_MODULE=musterpoint.integrations.sagemaker_training:main
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Iterable, MutableMapping, NoReturn, Protocol

EMPTY_MEANS_UNKNOWN = ("SAGEMAKER_JOB_NAME", "SAGEMAKER_REGION")
"""Variables that the toolkit sets for every job; empty where it has no value."""


class Child(Protocol):
    """A child process, as multiprocessing gives it."""

    def terminate(self) -> None: ...

    def join(self) -> None: ...


INTERMEDIATE = ("output/intermediate/.tmp.sagemaker_s3_sync", "output/intermediate")

TRAIN = "import sys; sys.path[:] = filter(None, sys.path); from musterpoint.cli.train import main; sys.exit(main())"
"""Not ``-m``: then Python looks first in the working directory, which may have a types.py."""


def main() -> NoReturn:
    """Replaces this process by musterpoint's ``train``, so that signals, exit code and failure file are its own.

    Raises:
        OSError: the interpreter can't be started again; the toolkit then reports that as the job's failure.
    """
    end_their_upload(os.environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml", multiprocessing.active_children())
    forget_empty(os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-c", TRAIN])


def forget_empty(environ: MutableMapping[str, str]) -> None:
    """Removes the empty variables, which musterpoint would keep as the user's choice."""
    for name in EMPTY_MEANS_UNKNOWN:
        if environ.get(name) == "":
            del environ[name]


def end_their_upload(base: str, uploaders: Iterable[Child]) -> None:
    """Ends the toolkit's upload of intermediate output, a child process, and removes the folders it made.

    If the folder existed when ``train`` begins, it would mean that the platform uploads its content.
    """
    ended = False
    for process in uploaders:
        process.terminate()
        process.join()
        ended = True
    for name in INTERMEDIATE if ended else ():
        try:
            os.rmdir(os.path.join(base, name))
        except OSError:
            pass
