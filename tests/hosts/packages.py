"""Packages made by hand, and an index of them on loopback: what pip and uv install in the tests."""

from __future__ import annotations

import base64
import http.server
import io
import tarfile
import threading
import zipfile
from typing import Any, Callable, Mapping, Sequence

BACKEND = """
import json, os, re, zipfile

def _name():
    return re.search(r'name = "(.+?)"', open("pyproject.toml").read())[1].replace("-", "_")

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    if os.path.exists("at_build.py"):
        exec(compile(open("at_build.py").read(), "at_build.py", "exec"), {})
    name = _name()
    file = f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, file), "w") as wheel:
        wheel.writestr(f"{name}.py", "BUILT = True\\n")
        wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return file
"""
"""A build backend small enough to serve: what setuptools does for most."""

LOOKS = """
import os, pathlib
words = []
for place in pathlib.Path("/proc").iterdir():
    try:
        if place.name.isdigit() and os.environ["MUSTER_TEST_TOKEN"].encode() in (place / "environ").read_bytes():
            words.append((place / "cmdline").read_text(errors="replace").replace("\\0", " "))
    except OSError:
        pass
pathlib.Path(os.environ["SEEN"]).write_text("\\n".join(words))
"""
"""Begins a build that writes down the command lines of all processes of the job."""

PYPROJECT = """
[build-system]
requires = ["tiny-backend"]
build-backend = "tiny_backend"
[project]
name = "NAME"
version = "1.0"
"""


def wheel(
    name: str, version: str = "1.0", requires: Sequence[str] = (), modules: Mapping[str, str] | None = None
) -> tuple[str, bytes]:
    """File name and bytes of a wheel whose module of the same name holds its version."""
    base = name.replace("-", "_")
    info = f"{base}-{version}.dist-info"
    files = {
        **(modules if modules is not None else {f"{base}.py": f"VERSION = {version!r}\n"}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {each}\n" for each in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }  # fmt: skip
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            made.writestr(path, text)
    return f"{base}-{version}-py3-none-any.whl", buffer.getvalue()


def backend() -> tuple[str, bytes]:
    return wheel("tiny-backend", modules={"tiny_backend.py": BACKEND})


def sdist(name: str, files: Mapping[str, str], version: str = "1.0") -> tuple[str, bytes]:
    """File name and bytes of a source package with ``files``."""
    base = f"{name.replace('-', '_')}-{version}"
    files = {"PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", **files}
    return f"{base}.tar.gz", tar_gz({f"{base}/{path}": text for path, text in files.items()})


def tar_gz(files: Mapping[str, str | bytes], modes: Mapping[str, int] | None = None) -> bytes:
    """``files`` packed as the SDK packs a source directory."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), (modes or {}).get(path, 0o644)
            made.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


class Index:
    """A simple index (PEP 503) at :attr:`url`, with a password if ``password`` is given.

    ``failing`` answers of 503 come first. ``hang`` holds every answer back until :meth:`close`; :attr:`asked` is set by
    the first request. ``api`` answers other paths (method and path to JSON text).
    """

    def __init__(self, *packages: tuple[str, bytes], password: str = "", failing: int = 0, hang: bool = False,
                 api: Callable[[str, str], str] | None = None) -> None:  # fmt: skip
        self.packages = dict(packages)
        self.password, self.failing, self.hang, self.api = password, failing, hang, api
        self.asked = threading.Event()
        self.requests: list[tuple[str, str]] = []
        self._over = threading.Event()
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.serve(self)

            do_POST = do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}/pypi/repo/simple/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def serve(self, request: http.server.BaseHTTPRequestHandler) -> None:
        authorization = request.headers.get("Authorization", "")
        self.requests.append((request.path, authorization))
        self.asked.set()
        if self.hang:
            self._over.wait(500)
            return
        if self.failing > 0:
            self.failing -= 1
            self._answer(request, 503, b"busy")
            return
        if not request.path.startswith("/pypi/"):
            text = self.api(request.command, request.path) if self.api else ""
            self._answer(request, 200 if text else 404, text.encode(), "application/json")
            return
        expected = "Basic " + base64.b64encode(f"aws:{self.password}".encode()).decode()
        if self.password and authorization != expected:
            self._answer(request, 401, b"who are you?")
            return
        name = request.path.rstrip("/").rpartition("/")[2]
        if name in self.packages:
            self._answer(request, 200, self.packages[name], "application/octet-stream")
            return
        files = [file for file in self.packages if file.split("-")[0].replace("_", "-").lower() == name]
        links = "".join(f'<a href="/pypi/files/{file}">{file}</a>\n' for file in files)
        self._answer(request, 200 if files else 404, f"<!DOCTYPE html><html><body>{links}</body></html>".encode())

    def _answer(self, request: http.server.BaseHTTPRequestHandler, status: int, body: bytes,
                kind: str = "text/html") -> None:  # fmt: skip
        request.send_response(status)
        if status == 401:
            request.send_header("WWW-Authenticate", 'Basic realm="packages"')
        request.send_header("Content-Type", kind)
        request.send_header("Cache-Control", "max-age=600" if kind == "application/octet-stream" else "no-cache")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
