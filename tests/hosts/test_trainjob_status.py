"""A TrainJob's status: progress and failures, sent to a server like Kubeflow's, and never in the job's way."""

from __future__ import annotations

import http.server
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from musterpoint.base.failure import Failure
from musterpoint.core.report.trainjob_status import CERTIFICATE, TOKEN, URL, report

from ..kubeflow import StatusServer

FAILED = Failure("train-node-0-1.train", 7, "user", "user", "ValueError: " + "ä" * 90 + "\nrank 3", 3, 1, None, 1.0)
FAILS = """
import json, os, time

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)

def say(percent, remaining, loss):
    status = {"progressPercentage": percent, "estimatedRemainingSeconds": remaining, "metrics": {"loss": loss}}
    with open(os.environ["MUSTER_PROGRESS"], "w") as file:
        json.dump(status, file)

over = os.environ["SEEN"] + ".over"
if os.environ["RANK"] == "0":
    say(40, 120, 0.5)
    wait_for(os.environ["SEEN"])
    say(60, 80, 0.25)
    open(over, "w").close()
else:
    assert "MUSTER_PROGRESS" not in os.environ
    wait_for(over)
    raise LookupError("no such shard")
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StatusServer]:
    made = StatusServer(tmp_path)
    yield made
    made.close()


def test_the_jobs_failure_is_there_once_with_who_and_why(server: StatusServer, local: Any) -> None:
    """From the first host alone, whichever host it happened on, with the last progress that rank 0 wrote."""
    program = local.program(FAILS)
    variables = [word for name, text in server.environ.items() for word in ("--env", f"{name}={text}")]
    seen = local.output.parent / "seen"
    variables += ["--env", f"SEEN={seen}"]
    waiting = threading.Thread(target=lambda: server.got.wait(500) and seen.touch(), daemon=True)
    waiting.start()
    played = ("--platform", "kubeflow", "--backend", "process", "--hosts", "2", "--launcher", "ranks", "--slots", "1")
    ran = local.run(*played, *variables, program)
    assert ran.code == 1
    assert "could not be reported" not in ran.stderr + ran.stdout
    assert "warning: MUSTER_PROGRESS=" not in ran.stdout
    first, last = server.requests[0]["trainerStatus"], server.status()
    assert (first["progressPercentage"], first["estimatedRemainingSeconds"]) == (40, 120)
    assert first["metrics"] == [{"name": "loss", "value": "0.5"}]
    assert last == {"progressPercentage": 60, "metrics": {
        "loss": "0.25", "failure": "LookupError: no such shard", "exit_code": "1",
        "failed_host": "train-node-0-1.train", "failed_rank": "1",
    }}  # fmt: skip


def test_the_token_is_read_anew_and_a_busy_server_asked_again(server: StatusServer) -> None:
    server.write_token("second-token")
    server.token = "second-token"
    server.fails = [500]
    assert report(FAILED, server.environ) == ""
    assert server.status()["metrics"]["failure"] == ("ValueError: " + "ä" * 90)[:64]


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
        assert time.monotonic() - started < 100
