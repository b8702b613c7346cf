"""Log streams and metrics that outlive the server: moto keeps them in memory only.

Each call that changes them is written to a file as it came, and made again when the next server starts. Lines of logs
go past moto's front door then, which takes none that are older than two weeks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from typing import Any, Iterable, Mapping

from moto.logs.models import logs_backends

from musterpoint.serve.moto_services import MotoServices
from musterpoint.serve.requests import Start, body_of
from musterpoint.serve.settings import ACCOUNT

SERVICES = ("logs", "monitoring")
_CHANGES = re.compile(r"(?:Create|Put|Delete|Tag|Untag|Set|Enable|Disable|Associate)[A-Z]\w*")
_ACTION = re.compile(rb"(?:^|&)Action=(\w+)")
_HEADERS = ("CONTENT_TYPE", "HTTP_CONTENT_ENCODING", "HTTP_SMITHY_PROTOCOL", "HTTP_X_AMZ_TARGET")


class KeptTelemetry:
    """A WSGI application for CloudWatch's services; calls wait until :meth:`load` has brought back what there was."""

    def __init__(self, data: str, region: str, moto: MotoServices) -> None:
        self._path = os.path.join(data, "telemetry.jsonl")
        self._region, self._moto = region, moto
        self._loaded = threading.Event()
        self._lock = threading.Lock()

    def load(self) -> None:
        """Brings back what a former server had; in any thread."""
        try:
            with contextlib.suppress(FileNotFoundError), open(self._path, encoding="utf-8") as lines:
                for line in lines:
                    if line.endswith("\n"):
                        self._repeat(json.loads(line))
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
                with open(self._path, "ab") as file:
                    file.write((json.dumps({**call, "headers": headers}) + "\n").encode())
        return answer


def _operation(environ: Mapping[str, Any], path: str, body: bytes) -> str:
    """The operation's name, in whichever of AWS's protocols the call is."""
    target = str(environ.get("HTTP_X_AMZ_TARGET", "")).rpartition(".")[2]
    if target or "/operation/" in path:
        return target or path.rpartition("/operation/")[2]
    found = _ACTION.search(body)
    return found[1].decode() if found else ""
