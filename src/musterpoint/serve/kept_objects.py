"""Buckets, objects and roles that outlive the server: moto keeps them in memory only.

What has become of an object is asked of moto after each call that may have changed it, and written to the data
directory. What changes a bucket or a role is kept as the call itself, and made again when the server starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
import urllib.parse
from typing import Any, Iterable, Mapping
from xml.etree import ElementTree

from musterpoint.serve.journal import Journal
from musterpoint.serve.moto_services import MotoServices
from musterpoint.serve.requests import Start, body_of

_HEADERS = ("Content-Type", "Content-Encoding", "Content-Disposition", "Content-Language", "Cache-Control")
_META = "x-amz-meta-"
_READS = re.compile(r"(?:^|[?&])(?:Action=)?(?:Get|List|Describe|Simulate)")
_LARGEST_CALL = 1 << 20
_LOADED_AHEAD = ("s3", "logs", "sts", "iam", "monitoring")
"""What nearly every client asks for; loading takes half a second."""


class KeptObjects:
    """moto with a memory. Used as :meth:`load`, in any thread, and as a WSGI application; calls wait for the former."""

    def __init__(self, data: str, moto: MotoServices) -> None:
        self._folder = os.path.join(data, "s3")
        self._calls = Journal(os.path.join(data, "calls.jsonl"))
        self._moto = moto
        self._lock = threading.RLock()

    def load(self) -> None:
        """Brings back what a former server had."""
        try:
            os.makedirs(self._folder, exist_ok=True)
            for call in self._calls.read():
                self._repeat(call)
            for name in sorted(os.listdir(self._folder)):
                if name.endswith(".json"):
                    self._load_object(os.path.join(self._folder, name))
        finally:
            self._moto.loaded.set()
        for service in _LOADED_AHEAD:
            self._moto.call_now(service, "GET", "/")

    def _load_object(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        with open(path.removesuffix(".json"), "rb") as data:
            self._moto.call_now("s3", "PUT", kept["path"], data.read(), **kept["headers"])

    def _repeat(self, call: Mapping[str, Any]) -> None:
        body = call["body"].encode("latin-1")
        self._moto.call_now(call["service"], call["method"], call["path"], body, **call["headers"])

    def __call__(self, environ: dict[str, Any], start: Start, service: str, path: str, query: str) -> Iterable[bytes]:
        """Answers a call of ``service``; ``path`` and ``query`` as they stand in the request line."""
        self._moto.loaded.wait()
        method = environ["REQUEST_METHOD"]
        if service == "s3" and method not in ("GET", "HEAD", "OPTIONS"):
            return self._s3(environ, start, method, _path_style(environ, path), query)
        if service in ("iam", "sagemaker"):
            return self._kept_call(environ, start, service, path)
        return self._moto(environ, start)

    def _s3(self, environ: dict[str, Any], start: Start, method: str, path: str, query: str) -> Iterable[bytes]:
        key = path.lstrip("/").partition("/")[2]
        words = {name for name, _ in urllib.parse.parse_qsl(query, keep_blank_values=True)}
        if key and ("partNumber" in words or "uploads" in words):
            return self._moto(environ, start)  # nothing is there before the upload is complete
        body = b"" if key else body_of(environ)
        with self._lock:
            answer, good = self._moto.answered(environ, start)
            if good and key:
                self._keep_object(path)
            elif good and "delete" in words:
                for found in _deleted(body):
                    self._keep_object(f"{path.rstrip('/')}/{urllib.parse.quote(found)}")
            elif good:
                place = f"{path}?{query}" if query else path
                self._note("s3", method, place, body, {})
        return answer

    def _kept_call(self, environ: dict[str, Any], start: Start, service: str, path: str) -> Iterable[bytes]:
        body = body_of(environ)
        target = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        headers = {"Content_Type": environ.get("CONTENT_TYPE", "")}
        if target:
            headers["X_Amz_Target"] = environ["HTTP_X_AMZ_TARGET"]
        with self._lock:
            answer, good = self._moto.answered(environ, start)
            if good and not _READS.search(target or body.decode("latin-1")):
                self._note(service, environ["REQUEST_METHOD"], path, body, headers)
        return answer

    def _note(self, service: str, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Keeps a call, to be made again."""
        if len(body) > _LARGEST_CALL:
            return
        call = {"service": service, "method": method, "path": path, "body": body.decode("latin-1"), "headers": headers}
        self._calls.add(call)

    def _keep_object(self, path: str) -> None:
        """Writes what ``path`` is now, or that it isn't any more."""
        place = os.path.join(self._folder, hashlib.sha256(urllib.parse.unquote(path).encode()).hexdigest())
        found = self._moto.call("s3", "GET", path)
        if found.status_code != 200:
            for name in (place + ".json", place):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)
            return
        headers = {name: found.headers[name] for name in _HEADERS if name in found.headers}
        headers.update({name: value for name, value in found.headers.items() if name.lower().startswith(_META)})
        kept = {"path": path, "headers": headers}
        for name, content in ((place, found.data), (place + ".json", json.dumps(kept).encode())):
            with open(name + ".part", "wb") as file:
                file.write(content)
            os.replace(name + ".part", name)


def _path_style(environ: Mapping[str, Any], path: str) -> str:
    """The path with the bucket in it, where the host's name has it."""
    host = environ.get("HTTP_HOST", "").partition(":")[0]
    bucket = host.removesuffix(".localhost") if host.endswith(".localhost") else ""
    return f"/{bucket}{path}" if bucket else path


def _deleted(body: bytes) -> list[str]:
    """The keys of a DeleteObjects request."""
    try:
        return [found.text or "" for found in ElementTree.fromstring(body).iter() if found.tag.endswith("Key")]
    except ElementTree.ParseError:
        return []
