"""Runs a command for each status that a job enters, as EventBridge would call a target."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import uuid
from datetime import datetime, timezone
from typing import Any, Callable

from musterpoint.serve.settings import ACCOUNT, Settings
from musterpoint.serve.state import Record, State
from musterpoint.serve.transitions import KIND


class OnChange:
    """One command after the other, in a thread of its own. The event is the command's stdin, as JSON."""

    def __init__(self, settings: Settings, state: State, say: Callable[[str], None]) -> None:
        self._settings, self._state, self._say = settings, state, say
        self._names: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._told: dict[str, int] = {
            record.name: len(record.facts["SecondaryStatusTransitions"]) for record in state.select(KIND)
        }
        self._thread = threading.Thread(target=self._run, name="on-change", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def changed(self, name: str) -> None:
        self._names.put(name)

    def close(self) -> None:
        """Returns when the commands of what has happened so far have ended."""
        self._names.put("")
        self._thread.join()

    def _run(self) -> None:
        while name := self._names.get():
            record = self._state.find(KIND, name)
            passed = [] if record is None else record.facts["SecondaryStatusTransitions"]
            for transition in passed[self._told.get(name, 0) :]:
                assert record is not None
                self._call(record, transition)
            self._told[name] = len(passed)
        self._state.close()

    def _call(self, record: Record, transition: dict[str, Any]) -> None:
        own = {"MUSTER_JOB": record.name, "MUSTER_STATUS": transition["Status"]}
        done = subprocess.run(
            self._settings.on_change,
            shell=True,
            input=json.dumps(event(self._settings, record, transition)),
            encoding="utf-8",
            env={**os.environ, **self._settings.variables, **own},
            check=False,
        )
        if done.returncode:
            self._say(f"--on-change ended with code {done.returncode} for {record.name}: {transition['Status']}")


def event(settings: Settings, record: Record, transition: dict[str, Any]) -> dict[str, Any]:
    """The event that EventBridge has for the status."""
    at = datetime.fromtimestamp(transition["StartTime"], timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "SageMaker Training Job State Change",
        "source": "aws.sagemaker",
        "account": ACCOUNT,
        "time": at,
        "region": settings.region,
        "resources": [record.arn],
        "detail": {
            "TrainingJobName": record.name,
            "TrainingJobArn": record.arn,
            "TrainingJobStatus": record.status,
            "SecondaryStatus": transition["Status"],
            "HyperParameters": record.request.get("HyperParameters") or {},
            "FailureReason": record.facts.get("FailureReason", ""),
        },
    }
