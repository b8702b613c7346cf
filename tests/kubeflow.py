"""A stand-in for the status server of Kubeflow's trainer (kubeflow/trainer, ``pkg/statusserver``), over TLS."""

from __future__ import annotations

import http.server
import json
import re
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

from musterpoint.core.report.trainjob_status import CERTIFICATE, TOKEN, URL

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/train/status"


class StatusServer:
    """The trainer's status server: one certificate, one token that is good, answers by :attr:`fails`."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[dict[str, Any]] = []
        self.fails: list[int] = []
        self.got = threading.Event()
        self.folder = folder
        self.token = "first-token"
        key, self.certificate = folder / "key.pem", folder / "ca.crt"
        words = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
                 "-subj", "/CN=trainer", "-addext", "subjectAltName=IP:127.0.0.1")  # fmt: skip
        subprocess.run(["openssl", *words, "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        self.write_token("first-token")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def write_token(self, text: str) -> None:
        (self.folder / "token").write_text(text + "\n")

    @property
    def environ(self) -> dict[str, str]:
        url = f"https://127.0.0.1:{self._server.server_address[1]}{PATH}"
        return {URL: url, CERTIFICATE: str(self.certificate), TOKEN: str(self.folder / "token")}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code, answer = owner.answer(self.path, self.headers["Authorization"], body)
                data = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_words: Any) -> None:
                pass

        return Handler

    def answer(self, path: str, authorization: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if path != PATH:
            return 404, {"kind": "Status", "message": "Not found"}
        if self.fails:
            return self.fails.pop(0), {"kind": "Status", "message": "Internal error"}
        if authorization != f"Bearer {self.token}":
            return 403, {"kind": "Status", "message": "Forbidden"}
        request = json.loads(body)
        wrong = self._wrong(request)
        if wrong or len(body) > 1 << 16:
            return 422, {"kind": "Status", "message": wrong}
        self.requests.append(request)
        self.got.set()
        return 200, request

    @staticmethod
    def _wrong(request: dict[str, Any]) -> str:
        """What the schema of TrainerStatus has against it."""
        status = request["trainerStatus"]
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", status["lastUpdatedTime"]):
            return "lastUpdatedTime"
        percent, remaining = status.get("progressPercentage", 0), status.get("estimatedRemainingSeconds", 0)
        if type(percent) is not int or type(remaining) is not int or not 0 <= percent <= 100 or remaining < 0:
            return f"progress: {percent}, {remaining}"
        if set(status) - {"progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime"}:
            return f"fields: {sorted(status)}"
        texts = [text for metric in status.get("metrics", []) for text in (metric["name"], metric["value"])]
        long = [text for text in texts if not isinstance(text, str) or not 1 <= len(text) <= 64]
        return f"too long: {long}" if long else ""

    def status(self) -> dict[str, Any]:
        """What the TrainJob has: the last request, in place of all before it; metrics by name, and no time."""
        status = dict(self.requests[-1]["trainerStatus"])
        del status["lastUpdatedTime"]
        return {**status, "metrics": {metric["name"]: metric["value"] for metric in status.get("metrics", [])}}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
