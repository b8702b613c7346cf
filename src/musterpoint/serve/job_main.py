"""The program of a job's process."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import traceback
from typing import Iterable

from musterpoint.core.processes.process_tree import die_with_parent
from musterpoint.serve.job_process import Job, Link
from musterpoint.serve.settings import Settings
from musterpoint.serve.training_job import TrainingJob


def main() -> None:
    """Runs the job of which the server tells. The words: a socket's descriptor, and the server's process."""
    die_with_parent(int(sys.argv[2]))
    with socket.socket(fileno=int(sys.argv[1])) as given, given.makefile(encoding="utf-8") as lines:
        os.set_inheritable(given.fileno(), False)
        first = next(lines, "")
        if not first:  # the server has ended, and had no job for it
            return
        told = json.loads(first)
        job, settings = Job(**told["job"]), Settings(**told["settings"])
        log = os.open(settings.job_log(job.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number in (1, 2):
            os.dup2(log, number)
        process = TrainingJob(settings, job, Link(given))
        threading.Thread(target=_listen, args=(process, lines), name="orders", daemon=True).start()
        try:
            process.main()
        finally:  # an error of ours stands in the job's log whole
            sys.stdout.flush()
            given.shutdown(socket.SHUT_WR)


def _listen(process: TrainingJob, lines: Iterable[str]) -> None:
    for line in lines:
        try:
            process.take(json.loads(line))
        except Exception:
            traceback.print_exc()
    os._exit(1)  # the server has ended: what is below this process ends with it
