"""What of ``ray start``'s words is passed on; how a worker waits for its head, and the program for all nodes; how a
node notices that it can't start.

``ray`` here is a small package in its place.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from musterpoint.base.failure import Failure
from musterpoint.core.supervise.launches import ENDED
from musterpoint.embedded.programs.ray_node import Errors, write_agent_port

from .conftest import program_of

RAYLET = """\
import os
class Node:
    state = 0
    def __init__(self, address):
        self.node_manager_address = address
class GcsClient:
    def __init__(self, address):
        pass
    def get_all_node_info(self, timeout):
        names = open(os.environ["NODES"]).read().split()
        return dict(enumerate(map(Node, names)))
"""
PRIVATE = {
    "ray_constants": "NUM_REDIS_GET_RETRIES = 20\n",
    "services": """\
import collections, subprocess
Info = collections.namedtuple("Info", "process")
def start_ray_process(command, process_type, fate_share):
    return Info(subprocess.Popen(command))
def start_api_server(include_dashboard, raise_on_failure):
    raise AssertionError("a dashboard that nobody asked for")
def get_node(address, node):
    raise RuntimeError("no such node")
""",
    "node": """\
import sys
from ray._private import ray_constants, services
class Node:
    def __init__(self, log, then):
        assert ray_constants.NUM_REDIS_GET_RETRIES == 900
        assert services.start_api_server(False, raise_on_failure=False) == (None, None)
        command = [sys.executable, "-c", then, f"--stderr_filepath={log}"]
        self.info = services.start_ray_process(command, "gcs_server", fate_share=False)
        if "SIGTERM" in then:
            self.kill_all_processes()
            sys.exit("ended by itself")
        services.get_node("here:1", "this")
    def kill_all_processes(self):
        self.info.process.terminate()
        self.info.process.wait()
""",
}
LOG = "".join(
    f"[2026-11-23 14:19:37,315 {level} 31 31] (raylet) {text}\n"
    for level, text in (("I", "going on"), ("C", "Check failed: Timed out waiting for file"), ("I", "and on"))
)
SCRIPTS = "def main():\n    import sys\n    print('advice')\n    sys.exit(f'started {sys.argv}')\n"


@pytest.fixture
def ray(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of a program whose Python has Ray."""
    package = tmp_path / "site" / "ray"
    (package / "scripts").mkdir(parents=True)
    (package / "_raylet.py").write_text(RAYLET)
    (package / "scripts" / "scripts.py").write_text(SCRIPTS)
    beside = tmp_path / "code"
    beside.mkdir()
    (beside / "ray.py").write_text("raise ImportError('the user has a ray.py')")
    return {**environ, "NODES": str(tmp_path / "nodes"), "PYTHONPATH": str(beside)}


def test_advice_is_dropped_and_errors_are_passed_on() -> None:
    said = io.StringIO()
    killed: list[int] = []
    stream = Errors(said, killed.append)
    for level, text in [
        ("INFO", "To terminate the Ray runtime, run"), ("SUCC", "Ray runtime started."), ("WARN", "little memory"),
        ("ERR", "Some Ray subprocesses exited unexpectedly:"), ("ERR", "raylet [exit code=-9]"),
        ("ERR", "[2026-11-22 09:14:55,582 I 9 9] (raylet) fine\n[2026-11-22 09:14:55,582 E 9 9] (raylet) not fine"),
        ("ERR", "Remaining processes will be killed."),
    ]:  # fmt: skip
        print(f"2026-11-22 09:15:00,783\t{level} scripts.py:1307 -- {text}", file=stream)
    assert said.getvalue().splitlines() == [
        "little memory", "Some Ray subprocesses exited unexpectedly:", "raylet [exit code=-9]",
        "[2026-11-22 09:14:55,582 E 9 9] (raylet) not fine", "Remaining processes will be killed.",
        "Ray's processes that ended here: raylet [exit code=-9]",
    ]  # fmt: skip
    assert killed == [9]


def test_a_worker_waits_for_its_head(root: Path, ray: dict[str, str], tmp_path: Path) -> None:
    """And makes its directory for this user alone."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    node = [*program_of(root, tmp_path / "site", "ray_node.py"), str(tmp_path / "tmp")]
    rest = ["start", f"--address=127.0.0.1:{port}"]
    late = subprocess.run([*node, "0", *rest], env=ray, capture_output=True, text=True, check=False)
    assert late.returncode == 1
    assert f"Ray's head at 127.0.0.1:{port} can't be reached after 0 s" in late.stderr
    process = subprocess.Popen(
        [*node, "100", *rest], env=ray, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.accept()[0].close()
        out, err = process.communicate(timeout=500)
    assert out == "", "what it prints on stdout is shown on stderr, but for advice"
    assert err.splitlines()[-1] == f"started ['ray', 'start', '--address=127.0.0.1:{port}']"
    assert os.stat(tmp_path / "tmp").st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("then", "code", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", -9, "gcs_server [exit code=-9]"),
        ("import sys; sys.exit(3)", 1, "gcs_server [exit code=3]"),
        ("import signal; signal.pause()  # until SIGTERM", 1, "ended by itself"),
    ],
    ids=["killed", "exits", "is ended"],
)  # fmt: skip
def test_an_end_before_the_node_is_up_is_noticed_at_once(
    root: Path, ray: dict[str, str], tmp_path: Path, then: str, code: int, said: str
) -> None:
    """Ray would ask for the node for 900 s, as it is told to here. What Ray ends by itself isn't reported."""
    package, log = tmp_path / "site" / "ray", tmp_path / "gcs_server.err"
    (package / "_private").mkdir()
    for name, text in PRIVATE.items():
        (package / "_private" / f"{name}.py").write_text(text)
    log.write_text(LOG)
    start = f"def main():\n    from ray._private.node import Node\n    Node({str(log)!r}, {then!r})\n"
    (package / "scripts" / "scripts.py").write_text(start)
    node = [*program_of(root, tmp_path / "site", "ray_node.py"), str(tmp_path / "tmp"), "900", "start", "--head"]
    done = subprocess.run(node, env=ray, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    *before, last = done.stderr.splitlines()
    assert last.endswith(said), done.stderr
    assert before == ([LOG.splitlines()[1]] if "gcs_server" in said else [])


@pytest.mark.parametrize(
    ("port", "more", "written"), [("7", "", "7"), ("7", " --minimal", "-1"), ("0", "", None)], ids=str
)
def test_a_raylet_knows_its_agents_port(tmp_path: Path, port: str, more: str, written: str | None) -> None:
    """Without that it aborts where its agent takes longer than 15 s. A port 0 only the agent can know."""
    agent = f"python agent.py --listen-port={port} --node-id=ab{more}"
    write_agent_port(["raylet", f"--session_dir={tmp_path}", "--node_id=ab", f"--dashboard_agent_command={agent}"])
    path = tmp_path / "dashboard_agent_listen_port_ab"
    assert (path.read_text() if path.exists() else None) == written


def test_the_program_starts_when_all_nodes_are_in(root: Path, ray: dict[str, str], tmp_path: Path) -> None:
    """It becomes the process, with the PYTHONPATH it was given; the log says which nodes are missing."""
    head = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{head.getsockname()[1]}"
    driver = [*program_of(root, tmp_path / "site", "ray_driver.py"), address, "algo-1=10.0.0.1,algo-2=10.0.0.2"]
    program = [sys.executable, "-c", "import os, sys; print(os.getpid(), os.environ['PYTHONPATH']); sys.exit(7)"]
    nodes = tmp_path / "nodes"
    nodes.write_text("10.0.0.1")
    outer = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(outer))
        listener.listen()
        told = {**ray, "MUSTER_OUTER": str(outer), "MUSTER_SOCKET_TOKEN": "t0ken"}
        waits = subprocess.Popen([*driver, "0", *program], env=told, stderr=subprocess.PIPE, text=True)
        with listener.accept()[0] as connection, connection.makefile("rw") as lines:
            assert lines.readline() == "t0ken\n"
            told = json.loads(lines.readline().removeprefix(ENDED))
            lines.write("heard\n")
            lines.flush()
            waits.communicate(timeout=500)
    reported = Failure.from_wire(told["failure"])
    assert (told["pid"], waits.returncode, reported.code) == (waits.pid, 72, 72)
    assert (reported.host, reported.cause) == ("algo-1", "muster")
    assert "missing: algo-2 (10.0.0.2)" in reported.reason
    late = subprocess.run([*driver, "0", *program], env=ray, capture_output=True, text=True, check=False)
    assert late.returncode == 72
    assert "it has 1 of 2 nodes after 0 s; missing: algo-2 (10.0.0.2)" in late.stderr
    process = subprocess.Popen([*driver, "100", *program], env=ray, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)  # fmt: skip
    threading.Timer(0.3, lambda: nodes.write_text("10.0.0.2 10.0.0.1")).start()
    out, err = process.communicate(timeout=500)
    assert process.returncode == 7, err
    assert out.split() == [str(process.pid), ray["PYTHONPATH"]]
    assert "all of its 2 nodes" in err
    missing = subprocess.run([*driver, "9", "/no/such/program"], env=ray, capture_output=True, text=True, check=False)
    assert missing.returncode == 64
    assert "can't execute /no/such/program" in missing.stderr
    head.close()
