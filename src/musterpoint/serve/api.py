"""``muster serve`` from Python, for a test or a notebook. The server ends with the ``with`` block.

::

    from musterpoint.serve import Server

    with Server() as server:
        sagemaker = server.client("sagemaker")
        sagemaker.create_training_job(TrainingJobName="first", …)
        assert server.wait("first")["TrainingJobStatus"] == "Completed"
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Mapping, Sequence

import boto3
import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from musterpoint.base.errors import UsageError
from musterpoint.serve import running
from musterpoint.serve.settings import token_of

_LONGEST_END = 30.0
"""Seconds that a server gets to end its jobs and itself."""
_RUN = "import sys; sys.path[:] = filter(None, sys.path); from musterpoint.cli.main import main; sys.exit(main())"
"""Not ``-m``: a file of the user's folder would come before the standard library's."""
SERVICE = "muster"
PATH = "/_muster/jobs/"
_MORE = 30.0
"""Seconds that an answer may take beyond what was asked."""


class ControlClient:
    """Asks a running server beside AWS's API: a job's end awaited, faults on demand.

    ``variables``: those that a client of the server exports."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._url, self._region = variables["AWS_ENDPOINT_URL"], variables["AWS_REGION"]
        self._keys = Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def ask(self, job: str, what: str, parameters: Mapping[str, Any], timeout: float = 600.0) -> dict[str, Any]:
        """The server's answer; raises as :meth:`post`."""
        return self.post(f"{PATH}{urllib.parse.quote(job, safe='')}/{what}", parameters, timeout)

    def post(self, path: str, parameters: Mapping[str, Any], timeout: float = 600.0) -> dict[str, Any]:
        """The server's answer at ``path``.

        Raises:
            UsageError: it refuses, or there is no server.
            TimeoutError: what was waited for hasn't come.
        """
        url = self._url + path
        request = AWSRequest("POST", url, data=json.dumps(parameters).encode())
        SigV4Auth(self._keys, SERVICE, self._region).add_auth(request)
        headers = dict(request.headers.items())
        try:
            with self._open(urllib.request.Request(url, request.data, headers), timeout=timeout + _MORE) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                text = json.loads(error.read()).get("message", str(error))
            raise (TimeoutError if error.code == 408 else UsageError)(text) from None
        except urllib.error.URLError as error:
            raise UsageError(f"no server answers at {self._url}: {error.reason}") from None


class Client:
    """A server that runs, wherever that is. ``variables``: what ``muster serve --export`` prints there."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = dict(variables)
        self._control = ControlClient(self.variables)

    @property
    def url(self) -> str:
        return self.variables["AWS_ENDPOINT_URL"]

    @property
    def page(self) -> str:
        """The address of the page for browsers, with its token."""
        return f"{self.url}/?token={token_of(self.variables['AWS_SECRET_ACCESS_KEY'])}"

    def client(self, service: str, **options: Any) -> Any:
        """A boto3 client that talks to this server."""
        presigned = {"signature_version": "s3v4"} if service == "s3" else {}  # else by Version 2, which is refused
        config = Config(proxies={}, **presigned).merge(options.pop("config", None) or Config())
        fixed = {**self._session, "endpoint_url": self.url, "config": config}
        return self.session().client(service, **{**fixed, **options})

    def session(self) -> Any:
        """A boto3 session; set ``AWS_ENDPOINT_URL`` for it, or give ``endpoint_url`` to its clients."""
        own = botocore.session.Session(
            {"profile": (None, None, None, None)}
        )  # AWS_PROFILE may name one that isn't here
        return boto3.Session(botocore_session=own, **self._session)

    @property
    def _session(self) -> dict[str, str]:
        return {
            "region_name": self.variables["AWS_REGION"],
            "aws_access_key_id": self.variables["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": self.variables["AWS_SECRET_ACCESS_KEY"],
        }

    def wait(self, job: str, status: str | Sequence[str] = (), timeout: float = 600.0) -> dict[str, Any]:
        """DescribeTrainingJob's answer once ``job`` is over, or has a ``status`` (primary or secondary).

        ``job``: its name, or its ARN.

        Raises:
            TimeoutError: it isn't so after ``timeout`` seconds.
        """
        wanted = [status] if isinstance(status, str) else list(status)
        return self._control.ask(job, "wait", {"status": wanted, "timeout": timeout}, timeout)

    def interrupt(self, job: str) -> dict[str, Any]:
        """The spot market takes the instances of ``job`` back. SIGTERM, 120 s, and another start with its checkpoint.

        Returns, as the other faults do, what DescribeTrainingJob answers afterwards. Raises UsageError where the job
        isn't a spot job, or its hosts don't run.
        """
        return self._control.ask(job, "interrupt", {})

    def lose(self, job: str, host: str) -> dict[str, Any]:
        """``host`` (``algo-2``) goes away at once, with everything on it."""
        return self._control.ask(job, "lose", {"host": host})

    def wait_for_output(self, job: str, text: str, timeout: float = 600.0) -> None:
        """Returns once a host of ``job`` has written a line with ``text``.

        Raises:
            TimeoutError: none has after ``timeout`` seconds, or when the job was over.
        """
        self._control.ask(job, "wait-for-output", {"text": text, "timeout": timeout}, timeout)

    def reset(self) -> None:
        """Ends all jobs and forgets everything; the jobs' files stay."""
        self._control.post("/_muster/reset", {})


class Server(Client):
    """A new server in a process of its own, on a free port. Options are those of ``muster serve``.

    ``data``: where what jobs leave lies; without it a directory that is removed at the end. ``environ``: the server's
    variables in the place of this process's.

    Raises:
        UsageError: it can't be started; the message is the server's own.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        backend: str = "process",
        image: Mapping[str, str] | None = None,
        region: str | None = None,
        max_jobs: int | None = None,
        gpus: str = "real",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._ours = "" if data is not None else tempfile.mkdtemp(prefix="muster-serve-")
        self.data = Path(os.path.abspath(data if data is not None else self._ours))
        words = ["--data", str(self.data), "--port", str(port), "--backend", backend, "--gpus", gpus]
        options = (("--region", region), ("--max-jobs", max_jobs))
        words += [word for flag, value in options if value is not None for word in (flag, str(value))]
        words += [word for uri, local in (image or {}).items() for word in ("--image", f"{uri}={local}")]
        self._process = _start(words, environ)
        try:
            super().__init__(_read_ready(self._process))
        except BaseException:
            self._remove()
            raise

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def stop(self) -> None:
        """Ends the server, and at once the jobs that still run."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_LONGEST_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._remove()

    def kill(self) -> None:
        """Kills the server as a crash would; its jobs end with it."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def _remove(self) -> None:
        self._process.wait()
        self._close_pipes()
        if self._ours:
            shutil.rmtree(self._ours, ignore_errors=True)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def _start(words: Sequence[str], environ: Mapping[str, str] | None) -> subprocess.Popen[str]:
    """The server ends with its stdin: so also when this process is killed."""
    return subprocess.Popen(
        [sys.executable, "-c", _RUN, "serve", "--end-with-stdin", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=None if environ is None else {**environ},
        start_new_session=True,
    )


def _read_ready(process: subprocess.Popen[str]) -> dict[str, str]:
    """The variables that a client has to export, once the server answers."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith(running.READY):
            break
    else:
        raise UsageError(f"muster serve ended with code {process.wait()} before it answered: its stderr says why")
    return running.read_exports(said)


__all__ = ["Client", "Server"]
