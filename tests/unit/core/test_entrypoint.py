"""How a job ends on one host, and the reports it leaves; whole jobs on several hosts are in tests/hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from musterpoint.base.probe import ask
from musterpoint.base.settings import Settings, from_environ
from musterpoint.core import attempt
from musterpoint.core.job.model import Paths
from musterpoint.core.job.read import read_job
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.runtime import Request, Runtime
from musterpoint.core.supervise.state import SHORTEST_START, Outcome, Rules
from musterpoint.core.supervise.watcher import WatchedJob

from ..job_tree import write_tree
from ..running import result_of


class Tree:
    """A job's ``/opt/ml`` of one host."""

    def __init__(self, base: Path) -> None:
        self.base = write_tree(base, {"sagemaker_program": "train.py"}, code="print('hello', flush=True)\n")

    def run(self, environ: dict[str, str], first: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        code = f"import os, sys\nfrom musterpoint.core import entrypoint, prepare, runtime\n{first}\n"
        code += "sys.exit(entrypoint.run(runtime.Request(os.environ), lambda *_: None))"
        return result_of([sys.executable, "-c", code], {**environ, "SAGEMAKER_BASE_DIR": str(self.base), **more})

    def left(self, name: str) -> str:
        return (self.base / "output" / name).read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_every_ending_leaves_its_report(tree: Tree, environ: dict[str, str]) -> None:
    done = tree.run(environ)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert tree.left("success") == ""
    assert json.loads(tree.left("outcome.json"))["class"] == "done"
    events = [(row["host"], row["event"]) for row in json.loads(tree.left("timeline.json"))]
    assert events[0] == ("algo-1", "entry-point-started")
    assert ("algo-1", "rank-ended") in events
    assert events[-1] == ("algo-1", "job-ended")


def test_a_wrong_option_is_a_sentence_64_and_a_failure_file(tree: Tree, environ: dict[str, str]) -> None:
    done = tree.run(environ, MUSTER_SLOTS="many")
    assert (done.returncode, done.stdout) == (64, "")
    assert tree.left("failure").startswith("muster: MUSTER_SLOTS='many': expected a whole number")
    assert "Traceback" not in done.stderr
    assert json.loads(tree.left("outcome.json"))["code"] == 64


def test_nothing_is_made_for_a_program_that_is_not_there(tmp_path: Path, environ: dict[str, str]) -> None:
    words = [sys.executable, "-m", "musterpoint", "launch", "trian.py"]
    done = result_of(words, environ, cwd=tmp_path)
    assert (done.returncode, [*tmp_path.iterdir()]) == (64, []), done.stderr


def test_a_bug_of_ours_is_70_with_its_traceback(tree: Tree, environ: dict[str, str]) -> None:
    done = tree.run(environ, "def bug(*_): raise KeyError('nobody thought of it')\nprepare.prepare_host = bug")
    assert done.returncode == 70
    failure = tree.left("failure")
    assert failure.startswith("muster: internal error, please report it: KeyError: 'nobody thought of it'")
    assert "in bug" in failure
    outcome = json.loads(tree.left("outcome.json"))
    assert (outcome["cause"], outcome["class"], outcome["retryable"]) == ("muster", "infra", False)


def test_a_secret_in_an_error_of_ours_is_hidden(tree: Tree, environ: dict[str, str]) -> None:
    code = "def bug(*_): raise KeyError('xyzzy-xyzzy-1234')\nprepare.prepare_host = bug"
    done = tree.run(environ, code, API_TOKEN="xyzzy-xyzzy-1234")
    assert done.returncode == 70
    assert "xyzzy" not in done.stderr + tree.left("failure") + tree.left("outcome.json")


def test_a_stop_before_the_ranks_has_the_code_that_was_asked_for(tree: Tree, environ: dict[str, str]) -> None:
    code = "from musterpoint.base.errors import StoppedEarly\ndef stopped(*_): raise StoppedEarly('algo-1', 15)\n"
    done = tree.run(environ, f"{code}prepare.prepare_host = stopped", MUSTER_STOP_EXIT_CODE="7")
    assert (done.returncode, json.loads(tree.left("outcome.json"))["class"]) == (7, "stopped")


def test_every_option_of_the_supervisor_gets_there() -> None:
    environ = {
        "MUSTER_STOP_GRACE": "9", "MUSTER_STOP_SIGNAL": "USR1", "MUSTER_STOP_EXIT_CODE": "7",
        "MUSTER_ON_FAILURE": "finish", "MUSTER_OUTSIDE": "stop", "MUSTER_STALL_TIMEOUT": "50",
        "MUSTER_ON_STALL": "dump", "MUSTER_ROLLCALL_TIMEOUT": "4000",
    }  # fmt: skip
    options = from_environ(environ)
    job = read_job(environ, options._replace(outside="wait"), "/nowhere", "train.py")
    plan = LaunchPlan("ranks", job.current_host, (), (), 1, 1, 0, "/", independent=True)
    assert attempt._rules(job, options, plan, True) == Rules(
        job.current_host, 9.0, signal.SIGUSR1, 7, finish_on_failure=True, outside=False,
        tolerates_lost_peers=True, stall_timeout=50.0, stall_ends=False, start_timeout=4000.0, lent=True,
    )  # fmt: skip
    options = from_environ({"MUSTER_ROLLCALL_TIMEOUT": "1"})
    plain = attempt._rules(job, options, plan._replace(independent=False), False)
    assert (plain.stall_ends, plain.tolerates_lost_peers, plain.start_timeout) == (True, False, SHORTEST_START)


@pytest.mark.parametrize(("stopped_at", "left"), [(None, None), (90.0, 20.0)])
def test_what_takes_long_at_the_end_has_the_rest_of_the_time_to_stop(
    stopped_at: float | None, left: float | None
) -> None:
    options, job = from_environ({"MUSTER_STOP_GRACE": "30"}), read_job({}, Settings(), "/nowhere", "train.py")
    loop: Any = SimpleNamespace(clock=lambda: 100.0)
    seen = WatchedJob(loop, Any, Any, print, print, ask, {}, options, job, False)
    assert seen.left(Outcome(143, None, stopped_at=stopped_at)) == (left and left + seen.grace - 30)


@pytest.mark.parametrize(("hosts", "seconds"), [('["a", "b"]', 180.0), ('["a"]', None)])
def test_code_is_ready_before_the_other_hosts_wait_no_longer(hosts: str, seconds: float | None) -> None:
    environ = {"SM_HOSTS": hosts, "SM_CURRENT_HOST": "a", "MUSTER_ROLLCALL_TIMEOUT": "200"}
    options = from_environ(environ)
    with closing(Runtime(Request(environ, program="train.py"))) as runtime:
        assert runtime.tools(read_job(environ, options, "/nowhere", "train.py"), options)._limit == seconds


def paths_of(request: Request) -> Paths:
    """Where the reports go as long as the job isn't known."""
    runtime = Runtime(request)
    runtime.close()
    return runtime.paths


def test_reports_of_a_job_that_cannot_be_read_lie_where_the_platform_looks(tmp_path: Path) -> None:
    base = {"SAGEMAKER_BASE_DIR": str(tmp_path)}
    assert paths_of(Request(base)).failure == os.path.join(tmp_path, "output", "failure")
    assert paths_of(Request(base, program="train.py")) == Paths(), "a folder of anybody's"
    (tmp_path / "input" / "config").mkdir(parents=True)
    assert paths_of(Request(base, program="train.py")) == paths_of(Request(base))
    nowhere = {"SAGEMAKER_BASE_DIR": str(tmp_path / "none")}
    assert paths_of(Request(nowhere)) == Paths()
