"""A real S3 API (moto's server, in its own process) and, before it, a proxy that fails in the ways networks do."""

from __future__ import annotations

import http.client
import http.server
import socket
import struct
import subprocess
import threading
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Callable

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-test", "AWS_REGION": "us-east-1"}


def without(module: str, directory: Path) -> Path:
    """``directory``: first on PYTHONPATH, it keeps ``module`` from Pythons that have it."""
    directory.mkdir(exist_ok=True)
    (directory / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n")
    return directory


class S3:
    """moto's server on a loopback port of its own. Signatures aren't checked."""

    def __init__(self, bin_directory: Path) -> None:
        self._process = subprocess.Popen(
            [bin_directory / "moto_server", "-H", "127.0.0.1", "-p", "0"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip
        assert self._process.stderr is not None
        said = ""
        for line in self._process.stderr:
            said += line
            if "Running on" in line:
                break
        else:
            raise AssertionError(f"moto's server didn't come up:\n{said}")
        self.port = int(line.strip().rpartition(":")[2].partition("/")[0].split()[0])
        self.url = f"http://127.0.0.1:{self.port}"
        self._drain = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._drain.start()

    def bucket(self, name: str) -> None:
        self._put(name, b"")

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """The object's URI."""
        self._put(f"{bucket}/{key}", data)
        return f"s3://{bucket}/{key}"

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Everything in the bucket (at most 1,000 objects), by key."""
        listed = ElementTree.fromstring(self._ask(urllib.request.Request(f"{self.url}/{bucket}?list-type=2")))
        keys = [found.text or "" for found in listed.iter() if found.tag.endswith("}Key")]
        ask = urllib.request.Request
        return {key: self._ask(ask(f"{self.url}/{bucket}/{urllib.parse.quote(key)}")) for key in keys}

    def _put(self, path: str, data: bytes) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        self._ask(urllib.request.Request(f"{self.url}/{path}", data, headers, method="PUT"))

    def _ask(self, request: urllib.request.Request) -> bytes:
        signed = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        request.add_header("Authorization", signed)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=500) as answer:
            data: bytes = answer.read()
            return data

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=500)
        self._drain.join(timeout=500)
        assert self._process.stderr is not None
        self._process.stderr.close()


class Faulty:
    """A proxy in front of ``port``. Each request of an object takes the next of :attr:`faults`; without one it passes.

    ``503``; ``403``; ``reset`` (in the middle of the body); ``cut`` (the body ends early, politely); ``lost`` and
    ``half`` (it has no or half a body, and headers only that tell the length of that); ``slow`` (32 KiB, then a wait of
    a second); ``stall`` (half of the body, then nothing until :meth:`close`). ``always`` stands for all.
    What is uploaded is read whole, but with ``reset`` and ``stall``, where half of it is; ``slow`` waits a second
    before it is passed on. ``on_list`` is called when a bucket was listed, before the answer is passed on.
    """

    def __init__(self, port: int) -> None:
        self.faults: list[str] = []
        self.always = ""
        self.on_list: Callable[[], object] | None = None
        self.seen: list[tuple[str, str]] = []
        """Methods, and who asked."""
        self.stalled = threading.Event()
        self._over = threading.Event()
        faulty = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                faulty.serve(self, port)

            def do_HEAD(self) -> None:
                faulty.serve(self, port)

            def do_PUT(self) -> None:
                faulty.take(self, port)

            do_POST = do_DELETE = do_PUT

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def serve(self, request: http.server.BaseHTTPRequestHandler, port: int) -> None:
        fault = self._next(request, request.headers.get("Range", ""))
        if self._refused(request, fault):
            return
        answer, body = self._ask(request, port, None)
        if "list-type" in request.path and self.on_list is not None:
            self.on_list()
        if self._lost(request, answer, body, fault):
            return
        self._head(request, answer, {})
        self._body(request, body, fault)

    def take(self, request: http.server.BaseHTTPRequestHandler, port: int) -> None:
        """An upload, or the beginning or end of one in parts."""
        fault = self._next(request, request.path)
        size = int(request.headers.get("Content-Length") or 0)
        data = request.rfile.read(size // 2 if fault in ("reset", "stall") else size)
        if self._refused(request, fault):
            return
        if fault in ("reset", "stall"):
            self._body(request, b"", fault)
            return
        if fault == "slow":
            self.stalled.set()
            self._over.wait(1.0)
        answer, body = self._ask(request, port, data)
        if self._lost(request, answer, body, fault):
            return
        self._head(request, answer, {"Content-Length": str(len(body))})
        request.wfile.write(body)

    def _lost(
        self, request: http.server.BaseHTTPRequestHandler, answer: http.client.HTTPResponse, body: bytes, fault: str
    ) -> bool:
        if fault not in ("lost", "half"):
            return False
        part = body[: len(body) // 2 if fault == "half" else 0]
        request.send_response(answer.status)
        request.send_header("Content-Length", str(len(part)))
        request.end_headers()
        request.wfile.write(part)
        return True

    def _next(self, request: http.server.BaseHTTPRequestHandler, what: str) -> str:
        fault = self.faults.pop(0) if self.faults else self.always
        self.seen.append((fault, what))
        return fault

    def _refused(self, request: http.server.BaseHTTPRequestHandler, fault: str) -> bool:
        code = {"503": "SlowDown", "403": "AccessDenied"}.get(fault)
        if code:
            body = f"<Error><Code>{code}</Code><Message>{code}!</Message></Error>".encode()
            request.send_response(int(fault))
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)
        return code is not None

    def _ask(
        self, request: http.server.BaseHTTPRequestHandler, port: int, data: bytes | None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        behind = http.client.HTTPConnection("127.0.0.1", port, timeout=500)
        behind.request(request.command, request.path, data, dict(request.headers.items()))
        answer = behind.getresponse()
        body = answer.read()
        behind.close()
        return answer, body

    def _head(
        self, request: http.server.BaseHTTPRequestHandler, answer: http.client.HTTPResponse, own: dict[str, str]
    ) -> None:
        request.send_response(answer.status)
        left_out = {"connection", "server", "date", "transfer-encoding", *map(str.lower, own)}
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in left_out]
        for name, value in (*kept, *own.items()):
            request.send_header(name, value)
        request.end_headers()

    def _body(self, request: http.server.BaseHTTPRequestHandler, body: bytes, fault: str) -> None:
        if fault == "slow":
            for at in range(0, len(body), 32 * 1024):
                request.wfile.write(body[at : at + 32 * 1024])
                request.wfile.flush()
                if self._over.wait(1.0 if at == 0 else 0.01):
                    return
            return
        half = len(body) // 2
        request.wfile.write(body[:half] if fault else body)
        request.wfile.flush()
        if fault == "stall":
            self.stalled.set()
            self._over.wait(500)
        if fault == "reset":
            request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if fault:
            request.close_connection = True
            if fault == "cut":
                request.connection.shutdown(socket.SHUT_WR)
            request.connection.close()

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
