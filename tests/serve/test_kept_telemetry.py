"""What is kept of logs and metrics: as much as there is room for, whenever the server was killed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from werkzeug.test import Client
from werkzeug.wrappers import Response

from musterpoint.serve.journal import Journal
from musterpoint.serve.kept_telemetry import KeptTelemetry
from musterpoint.serve.moto_services import MotoServices
from musterpoint.serve.settings import Settings

REGION = "eu-north-1"
"""Of this test only: moto's memory is one for the process."""
ROOM = 20_000


class Logs:
    """CloudWatch Logs, kept in ``data``."""

    def __init__(self, data: Path) -> None:
        self._settings = Settings(str(data), region=REGION)
        moto = MotoServices(self._settings)
        moto.loaded.set()
        self.kept = KeptTelemetry(str(data), REGION, moto, ROOM)
        self.kept.load()
        self._client = Client(lambda environ, start: self.kept(environ, start, "logs", "/"), Response)

    def ask(self, operation: str, **words: Any) -> dict[str, Any]:
        signed = f"AWS4-HMAC-SHA256 Credential=a/20260101/{REGION}/logs/aws4_request, SignedHeaders=host, Signature=0"
        answer = self._client.post(
            "/", base_url=self._settings.url, data=json.dumps(words),
            headers={"Authorization": signed, "X-Amz-Target": f"Logs_20140328.{operation}",
                     "Content-Type": "application/x-amz-json-1.1"},
        )  # fmt: skip
        assert answer.status_code == 200, answer.data
        found: dict[str, Any] = json.loads(answer.data or b"{}")
        return found

    def lines(self, stream: str) -> list[str]:
        found = self.ask("GetLogEvents", logGroupName="jobs", logStreamName=stream, startFromHead=True, limit=10_000)
        return [event["message"] for event in found["events"]]


def test_the_oldest_lines_make_room(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.ask("CreateLogGroup", logGroupName="jobs")
    for stream in ("old", "new"):
        logs.ask("CreateLogStream", logGroupName="jobs", logStreamName=stream)
        for number in range(100):
            event = {"timestamp": int(time.time() * 1000), "message": f"{stream} {number}"}
            logs.ask("PutLogEvents", logGroupName="jobs", logStreamName=stream, logEvents=[event])
        assert (tmp_path / "telemetry.jsonl").stat().st_size <= ROOM
    kept = logs.lines("new")
    assert logs.lines("old") == [] and 10 < len(kept) < 100
    assert kept == [f"new {number}" for number in range(100)][-len(kept) :]
    logs.ask("DeleteLogGroup", logGroupName="jobs")
    (tmp_path / "telemetry.jsonl").write_text("".join((tmp_path / "telemetry.jsonl").read_text().splitlines(True)[:-1]))
    assert Logs(tmp_path).lines("new") == kept, "the next server has what the file has"


def test_a_line_that_was_cut_off_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert list(Journal(str(path)).read()) == []
    path.write_bytes(b'{"a": 1}\n{"b": ')
    journal = Journal(str(path))
    assert list(journal.read()) == [{"a": 1}]
    journal.add({"c": 2})
    assert list(Journal(str(path)).read()) == [{"a": 1}, {"c": 2}]
