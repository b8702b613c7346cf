"""A job of one host that is started again: when it is, when no more, and what a stop does between two attempts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from musterpoint.core.channel.topics.attempts import NextAttempt, Ready, SeatChange
from musterpoint.core.rollcall.roster import Roster, Seat
from musterpoint.core.supervise import restarts
from musterpoint.core.supervise.restart_rules import RestartRules
from musterpoint.core.supervise.restarts import Restarts, fingerprint, progress

from ...job_tree import write_tree

PROGRAM = """
import os, signal, sys, time

attempt, rank = int(os.environ["MUSTER_ATTEMPT"]), int(os.environ.get("RANK", 0))
print("attempt", attempt, os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
"""


class Job:
    """``train`` with a program on a host of its own; ``say`` is what it prints on stderr."""

    def __init__(self, base: Path, environ: dict[str, str]) -> None:
        self.base, self.environ = base, {**environ, "SAGEMAKER_BASE_DIR": str(base)}
        write_tree(base, {"sagemaker_program": "train.py"})
        (base / "checkpoints").mkdir()
        self.said = self.printed = ""

    def start(self, body: str, **options: str) -> subprocess.Popen[str]:
        (self.base / "code" / "train.py").write_text(PROGRAM + body)
        return subprocess.Popen(
            [sys.executable, "-m", "musterpoint.cli.train"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**self.environ, "MUSTER_MASTER_PORT": "0", **{f"MUSTER_{name}": options[name] for name in options}},
        )  # fmt: skip

    def end(self, process: subprocess.Popen[str]) -> int:
        self.printed, self.said = process.communicate(timeout=500)
        return process.returncode

    def run(self, body: str, **options: str) -> int:
        return self.end(self.start(body, **options))

    @property
    def attempts(self) -> list[str]:
        return [line for line in self.printed.splitlines() if line.startswith("attempt")]

    @property
    def outcome(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.base / "output" / "outcome.json").read_text())
        return found


@pytest.fixture
def job(tmp_path: Path, environ: dict[str, str]) -> Job:
    return Job(tmp_path, environ)


def test_all_hosts_hear_of_new_addresses_and_ports() -> None:
    told: list[NextAttempt] = []
    loop = SimpleNamespace(clock=lambda: 0.0)
    between: Any = SimpleNamespace(loop=loop, checkpoints=lambda: None, master_port=lambda last: last + 1)
    peers: Any = SimpleNamespace(topic=lambda _topic: SimpleNamespace(restart=told.append))
    seats = Seat("a", "10.0.0.1", 1, ports=(1,)), Seat("b", "10.0.0.2", 1, ports=(2,)), Seat("c", "10.0.0.3", 1)
    ready = {"a": Ready("unknown", (9,)), "b": Ready("unknown", (2,)), "c": Ready("unknown", (), address="10.0.0.9")}
    roster = Roster("job", "session", seats, "10.0.0.1", 7777, "a")
    Restarts(between, peers, roster, RestartRules(1))._restart(ready)
    assert told == [NextAttempt(1, 7778, (SeatChange("a", "10.0.0.1", (9,)), SeatChange("c", "10.0.0.9", ())))]


KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def test_ranks_are_started_again_until_they_end_well(job: Job) -> None:
    assert job.run(f"if attempt < 2: {KILL}", MAX_RESTARTS="3") == 0, job.said
    assert job.attempts == ["attempt 0 0", "attempt 1 1", "attempt 2 2"]
    assert (job.outcome["code"], job.outcome["attempt"], job.outcome["attempts"]) == (0, 3, 3)
    assert "restart 2 of at most 3, on all hosts: rank 0 (local rank 0) on algo-1, killed by SIGKILL" in job.said
    assert not (job.base / "output" / "failure").exists()
    timeline = json.loads((job.base / "output" / "timeline.json").read_text())
    over = [row for row in timeline if row["event"] == "attempt-over"]
    assert [(row["attempt"], row["code"], row["progress"], row["left"]) for row in over] == [
        (0, 137, "unknown", 0), (1, 137, "unknown", 0),
    ]  # fmt: skip


def test_the_last_failure_counts_and_says_how_many_attempts_there_were(job: Job) -> None:
    body = f"if not attempt: {KILL}\nos.kill(os.getpid(), signal.SIGBUS)"
    assert job.run(body, MAX_RESTARTS="1") == 128 + signal.SIGBUS, job.said
    assert (job.outcome["attempts"], job.outcome["signal"]) == (2, signal.SIGBUS)
    reason = (job.base / "output" / "failure").read_text()
    assert reason == job.outcome["reason"]
    assert reason.endswith("\nin attempt 2, the last: --max-restarts 1 allows no more")


def test_the_programs_own_error_only_where_that_was_asked_for(job: Job) -> None:
    body = "if not attempt: raise ValueError('boom')"
    assert job.run(body, MAX_RESTARTS="3") == 1
    assert job.attempts == ["attempt 0 0"]
    assert "no restart: it is the program's own error (--restart-on user" in job.said
    assert "in attempt" not in job.outcome["reason"]
    assert job.run(body, MAX_RESTARTS="3", RESTART_ON="user") == 0, job.said
    assert len(job.attempts) == 2


def test_no_more_attempts_when_one_got_no_further_than_the_one_before(job: Job) -> None:
    (job.base / "checkpoints" / "old").touch()
    assert job.run(f"if not attempt: time.sleep(0.3)\n{KILL}", MAX_RESTARTS="9") == 137
    assert 2 <= len(job.attempts) < 10
    assert "it got no further than the attempt before" in job.outcome["reason"]
    body = "open('../checkpoints/new', 'a').write('x')\nif attempt < 3: " + KILL
    assert job.run(body, MAX_RESTARTS="9") == 0, job.said


SLOW_END = """
def told(signo, frame):
    open("../model/ending", "w").close()
    while not os.path.exists("../model/go"):
        time.sleep(0.02)
    os._exit(3)

if rank == 0:
    signal.signal(signal.SIGTERM, told)
    open("../model/ready", "w").close()
    time.sleep(600)
while not os.path.exists("../model/ready"):
    time.sleep(0.02)
"""


@pytest.mark.parametrize(("how", "code", "kind"), [(KILL, 143, "stopped"), ("raise ValueError('boom')", 1, "user")])
def test_a_stop_while_an_attempt_ends(job: Job, how: str, code: int, kind: str) -> None:
    """It ends a job that would have been started again; one that had failed for good has failed."""
    (job.base / "model").mkdir()
    process = job.start(f"{SLOW_END}\n{how}", MAX_RESTARTS="2", LAUNCHER="ranks", SLOTS="2")
    while not (job.base / "model" / "ending").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    (job.base / "model" / "go").touch()
    assert job.end(process) == code, job.said
    assert (job.outcome["class"], job.outcome["attempts"]) == (kind, 1)
    assert (job.base / "output" / "failure").exists() == (kind == "user")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ON_FAILURE": "finish"}, "--max-restarts 2 with --on-failure finish: a restart ends the other ranks"),
        ({"MAX_RESTARTS": "many"}, "MUSTER_MAX_RESTARTS='many': expected a whole number, 0 (never) to 999999"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(job: Job, options: dict[str, str], sentence: str) -> None:
    assert job.run("", **{"MAX_RESTARTS": "2", **options}) == 64
    assert job.attempts == []
    assert sentence in job.outcome["reason"]


def test_a_new_or_changed_file_is_progress_and_a_missing_one_is_not(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "deep" / "b"
    second.parent.mkdir()
    first.write_text("1")
    second.write_text("1")
    before = fingerprint([str(tmp_path), ""])
    assert progress(before, fingerprint([str(tmp_path)])) == "none"
    first.unlink()
    assert progress(before, fingerprint([str(tmp_path)])) == "none"
    os.utime(second, ns=(5, 5))
    assert progress(before, fingerprint([str(tmp_path)])) == "made"
    (tmp_path / "c").touch()
    assert progress(frozenset(), fingerprint([str(tmp_path)])) == "made"


def test_nothing_is_known_without_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    nowhere = fingerprint([str(tmp_path / "nowhere"), ""])
    assert progress(nowhere, nowhere) == "unknown"
    assert progress(nowhere, fingerprint([str(tmp_path)])) == "unknown"


def test_a_directory_that_is_too_large_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "MOST_ENTRIES", 1)
    (tmp_path / "a").touch()
    assert fingerprint([str(tmp_path)]) is not None
    (tmp_path / "b").touch()
    assert fingerprint([str(tmp_path)]) is None
    assert progress(frozenset(), None) == progress(None, frozenset()) == "unknown"
