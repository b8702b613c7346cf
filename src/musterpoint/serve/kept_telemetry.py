"""Log streams and metrics that outlive the server: moto keeps them in memory only.

Each call that changes them is written to a file as it came, and made again when the next server starts. Lines of logs
go past moto's front door then, which takes none that are older than two weeks.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from typing import Any, Iterable, Mapping

from moto.cloudwatch.models import cloudwatch_backends
from moto.logs.models import logs_backends

from musterpoint.serve.journal import Journal
from musterpoint.serve.moto_services import MotoServices
from musterpoint.serve.requests import Start, body_of
from musterpoint.serve.settings import ACCOUNT

SERVICES = ("logs", "monitoring")
MOST_BYTES = 32 << 20
"""Of the file; a few hundred thousand lines of logs, which take about 200 MiB of memory."""
MOST_POINTS = 100_000
"""Of metrics in memory, when the file has become too large."""
_CHANGES = re.compile(r"(?:Create|Put|Delete|Tag|Untag|Set|Enable|Disable|Associate)[A-Z]\w*")
_ACTION = re.compile(rb"(?:^|&)Action=(\w+)")
_HEADERS = ("CONTENT_TYPE", "HTTP_CONTENT_ENCODING", "HTTP_SMITHY_PROTOCOL", "HTTP_X_AMZ_TARGET")


class KeptTelemetry:
    """A WSGI application for CloudWatch's services; calls wait until :meth:`load` has brought back what there was."""

    def __init__(self, data: str, region: str, moto: MotoServices, most_bytes: int = MOST_BYTES) -> None:
        self._calls = Journal(os.path.join(data, "telemetry.jsonl"))
        self._region, self._moto, self._most = region, moto, most_bytes
        self._loaded = threading.Event()
        self._lock = threading.Lock()

    def load(self) -> None:
        """Brings back what a former server had; in any thread."""
        try:
            for call in self._calls.read():
                self._repeat(call)
        finally:
            self._loaded.set()

    def _repeat(self, call: Mapping[str, Any]) -> None:
        body = call["body"].encode("latin-1")
        if call["operation"] == "PutLogEvents":
            put = json.loads(body)
            group = logs_backends[ACCOUNT][self._region].groups.get(put["logGroupName"])
            if group is not None and put["logStreamName"] in group.streams:
                group.put_log_events(put["logStreamName"], put["logEvents"])
            return
        self._moto.call_now(call["service"], "POST", call["path"], body, **call["headers"])

    def __call__(self, environ: dict[str, Any], start: Start, service: str, path: str) -> Iterable[bytes]:
        self._loaded.wait()
        body = body_of(environ)
        operation = _operation(environ, path, body)
        if not _CHANGES.fullmatch(operation):
            return self._moto(environ, start)
        headers = {name.removeprefix("HTTP_").title(): environ[name] for name in _HEADERS if environ.get(name)}
        call = {"service": service, "operation": operation, "path": path, "body": body.decode("latin-1")}
        with self._lock:
            answer, good = self._moto.answered(environ, start)
            if good:
                size = self._calls.add({**call, "headers": headers})
                if size > self._most:
                    self._forget_the_oldest()
        return answer

    def _forget_the_oldest(self) -> None:
        """Keeps the newest half of what there may be; of what is older, streams and groups without their lines."""
        old = self._calls.lines()
        new: list[bytes] = []
        size = 0
        while old and size + len(old[-1]) <= self._most // 2:
            size += len(old[-1])
            new.append(old.pop())
        rest: list[bytes] = []
        dropped: Counter[tuple[str, str]] = Counter()
        size = 0
        for line in reversed(old):
            call = json.loads(line)
            if call["operation"] == "PutLogEvents":
                put = json.loads(call["body"].encode("latin-1"))
                dropped[put["logGroupName"], put["logStreamName"]] += len(put["logEvents"])
            elif call["operation"] != "PutMetricData" and size + len(line) <= self._most // 4:
                size += len(line)
                rest.append(line)
        self._calls.replace([*reversed(rest), *reversed(new)])
        self._forget_events(dropped)

    def _forget_events(self, dropped: Mapping[tuple[str, str], int]) -> None:
        """moto has lines in memory: those that aren't in the file any more go, too."""
        groups = logs_backends[ACCOUNT][self._region].groups
        for (group, stream), count in dropped.items():
            if group in groups and stream in groups[group].streams:
                del groups[group].streams[stream].events[:count]
        del cloudwatch_backends[ACCOUNT][self._region].metric_data[:-MOST_POINTS]


def _operation(environ: Mapping[str, Any], path: str, body: bytes) -> str:
    """The operation's name, in whichever of AWS's protocols the call is."""
    target = str(environ.get("HTTP_X_AMZ_TARGET", "")).rpartition(".")[2]
    if target or "/operation/" in path:
        return target or path.rpartition("/operation/")[2]
    found = _ACTION.search(body)
    return found[1].decode() if found else ""
