"""A failure as a TrainJob's status: sent to a server that is like Kubeflow's, over TLS, and never in the job's way."""

from __future__ import annotations

import http.server
import json
import re
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from musterpoint.failure import Failure
from musterpoint.report.trainjob_status import CERTIFICATE, TOKEN, URL, report

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/train/status"
FAILED = Failure("train-node-0-1.train", 7, "user", "user", "ValueError: " + "ä" * 90 + "\nrank 3", 3, 1, None, 1.0)


class StatusServer:
    """The trainer's status server: one certificate, one token that is good, answers by :attr:`fails`."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[dict[str, Any]] = []
        self.fails: list[int] = []
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
        return 200, request

    @staticmethod
    def _wrong(request: dict[str, Any]) -> str:
        """What the schema of TrainerStatus has against it."""
        status = request["trainerStatus"]
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", status["lastUpdatedTime"]):
            return "lastUpdatedTime"
        texts = [text for metric in status.get("metrics", []) for text in (metric["name"], metric["value"])]
        long = [text for text in texts if not isinstance(text, str) or not 1 <= len(text) <= 64]
        return f"too long: {long}" if long else ""

    def metrics(self) -> dict[str, str]:
        (request,) = self.requests
        return {metric["name"]: metric["value"] for metric in request["trainerStatus"]["metrics"]}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StatusServer]:
    made = StatusServer(tmp_path)
    yield made
    made.close()


def test_the_jobs_failure_is_there_once_with_who_and_why(server: StatusServer, local: Any) -> None:
    """From the first host alone, whichever host it happened on."""
    program = local.program("import os\nif os.environ['RANK'] == '1':\n    raise LookupError('no such shard')\n")
    variables = [word for name, text in server.environ.items() for word in ("--env", f"{name}={text}")]
    played = ("--platform", "kubeflow", "--backend", "process", "--hosts", "2", "--launcher", "ranks", "--slots", "1")
    ran = local.run(*played, *variables, program)
    assert ran.code == 1
    assert "could not be reported" not in ran.stderr + ran.stdout
    assert server.metrics() == {
        "failure": "LookupError: no such shard", "exit_code": "1", "failed_host": "train-node-0-1.train",
        "failed_rank": "1",
    }  # fmt: skip


def test_the_token_is_read_anew_and_a_busy_server_asked_again(server: StatusServer) -> None:
    server.write_token("second-token")
    server.token = "second-token"
    server.fails = [500]
    assert report(FAILED, server.environ) == ""
    assert server.metrics()["failure"] == ("ValueError: " + "ä" * 90)[:64]


def test_what_cannot_be_delivered_is_said_in_a_sentence(server: StatusServer, tmp_path: Path) -> None:
    environ = server.environ
    other = tmp_path / "other"
    other.mkdir()
    stranger = StatusServer(other)
    stranger.close()
    stranger.write_token("another-token")
    said = {
        "403 Forbidden": {TOKEN: str(other / "token")},
        f"{server.certificate}: expected a file with a token": {TOKEN: str(server.certificate)},
        "404 Not found": {URL: environ[URL] + "x"},
        "https://": {URL: environ[URL].replace("https", "http")},
        "No such file": {TOKEN: "/nowhere"},
        "certificate verify failed": {CERTIFICATE: str(stranger.certificate)},
        "refused": {URL: stranger.environ[URL]},
    }
    for words, different in said.items():
        problem = report(FAILED, {**environ, **different}, 0.3)
        assert problem.startswith(f"{URL}=http"), problem
        assert words in problem
        assert "first-token" not in problem
        assert "BEGIN" not in problem
    assert server.requests == []
    assert report(FAILED, {}) == ""


def test_a_server_that_says_nothing_delays_no_end(server: StatusServer) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as silent:
        started = time.monotonic()
        problem = report(FAILED, {**server.environ, URL: f"https://127.0.0.1:{silent.server_address[1]}/"}, 0.3)
        assert "could not be reported" in problem
        assert time.monotonic() - started < 3
