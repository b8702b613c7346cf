"""The keys of jobs."""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from musterpoint.serve import jobs
from musterpoint.serve.credentials import Credentials, new_pair
from musterpoint.serve.moto_services import Telemetry
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import State


@pytest.mark.parametrize("status", ["Completed", "Failed", "MaxRuntimeExceeded"])
def test_a_jobs_keys_sign_nothing_once_it_is_seen_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """Though its process still runs."""
    there, here = queue.Queue[Any](), threading.Event()

    def process() -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        child = subprocess.Popen(["sleep", "500"])
        there.put((child, theirs))
        return child, ours

    monkeypatch.setattr(jobs, "_process", process)
    said: list[str] = []
    state, credentials = State(said.append), Credentials(new_pair())
    running = jobs.Jobs(Settings(str(tmp_path)), state, Telemetry("us-east-1", said.append), credentials, said.append)
    running.start()
    running.add("ends", {"TrainingJobName": "ends", "OutputDataConfig": {"S3OutputPath": "s3://a/b"}}, {})
    child, theirs = there.get(timeout=60)
    spare, unused = there.get(timeout=60)
    with theirs.makefile("rw", encoding="utf-8") as link:
        key = json.loads(link.readline())["settings"]["access_key"]
        assert credentials.find(key)
        found: list[object] = []
        state.listen(lambda record: (found.append(credentials.find(key)), here.set()) if record.ended else None)
        link.write(json.dumps({"status": status, "message": "", "facts": {}}) + "\n")
        link.flush()
        assert here.wait(60) and found == [None] and child.poll() is None
    for each in (child, spare):
        each.kill()
        each.wait()
    for each in (theirs, unused):
        each.close()
