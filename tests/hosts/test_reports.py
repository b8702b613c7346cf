"""What a job on two hosts leaves behind, and what its programs see: reports, timelines, variables."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

HOSTS = ("algo-1", "algo-2")
TWO = ("--hosts", "2", "--backend", "process")
ROAD = ("entry-point-started", "rollcall-started", "rollcall-done", "rank-started", "job-failed", "job-ended")
KEYS = ["code", "cause", "class", "retryable", "host", "rank", "signal", "attempt", "attempts", "reason", "start"]

FOUR_FAIL = """
import os, pathlib, sys, time

rank = int(os.environ["RANK"])
shared = pathlib.Path(sys.argv[1])
(shared / f"here-{rank}").touch()
while len(list(shared.glob("here-*"))) < 4:
    time.sleep(0.01)
if rank == 3:
    time.sleep(600)
if rank == 2:
    gone = []
    while not gone:
        time.sleep(0.005)
        gone = [link for link in shared.glob("lost-*") if not pathlib.Path("/proc", os.readlink(link)).exists()]
    raise ValueError("the cause of it all")
(shared / f"lost-{rank}").symlink_to(str(os.getpid()))
sys.path.insert(0, str(shared / "site-packages"))
import collectives
collectives.all_reduce()
"""
# what a program raises itself is no symptom, whatever it says
COLLECTIVES = """
def all_reduce():
    raise RuntimeError("[/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:40")
"""


@pytest.mark.lane("suite")
def test_a_symptom_that_is_told_first_is_counted_and_the_cause_leads(local) -> None:  # type: ignore[no-untyped-def]
    """Ranks 0 and 1 on the leader's host lose their peer; the peer's own error is told a moment later."""
    (local.folder / "site-packages").mkdir()
    local.program(COLLECTIVES, "site-packages/collectives.py")
    ran = local.run(*TWO, "--slots", "2", "--launcher", "ranks", local.program(FOUR_FAIL), local.folder)
    assert ran.code == 1, ran.stderr
    lines = ran.reason.splitlines()
    assert lines[:2] == ["ValueError: the cause of it all", "rank 2 (local rank 0) on algo-2, exit code 1"]
    (counted,) = {ran.left(host, "failure").splitlines()[-1] for host in HOSTS}
    assert counted in ("1 other rank failed after it (peer lost)", "2 other ranks failed after it (peer lost)")
    assert [ran.outcome(host)["class"] for host in HOSTS] == ["user", "user"]


FINISH = """
import os, sys, time
rank = os.environ["RANK"]
if rank == "1":
    sys.exit(3)
time.sleep(1.5)
print(f"rank {rank} finished", flush=True)
"""


@pytest.mark.lane("suite")
def test_finish_lets_every_rank_of_every_host_end_by_itself(local) -> None:  # type: ignore[no-untyped-def]
    ran = local.run(*TWO, "--slots", "2", "--launcher", "ranks", "--on-failure", "finish", local.program(FINISH))
    assert ran.code == 3, ran.stderr
    logs = ran.log("algo-1") + ran.log("algo-2")
    assert sorted(line.split()[1] for line in logs.splitlines() if line.endswith("finished")) == [
        "0", "2", "3",
    ]  # fmt: skip
    assert [ran.outcome(host)["code"] for host in HOSTS] == [3, 3]
    assert "rank 1 (local rank 1) on algo-1, exit code 3" in ran.reason


@pytest.mark.lane("suite")
def test_a_failure_file_of_the_users_own_is_kept(local) -> None:  # type: ignore[no-untyped-def]
    program = local.program(
        "import os, pathlib, sys, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    base = pathlib.Path(os.environ['SM_OUTPUT_DIR'])\n"
        "    (base / 'failure').write_text('my own words')\n"
        "    sys.exit(4)\n"
        "time.sleep(600)\n"
    )
    ran = local.run(*TWO, "--launcher", "ranks", program)
    assert ran.code == 4, ran.stderr
    assert ran.left("algo-2", "failure") == "my own words"
    assert "exit code 4" in ran.left("algo-1", "failure")


@pytest.mark.lane("suite")
def test_a_jobs_reports_are_whole_and_its_timeline_tells_the_road_in_order(local) -> None:  # type: ignore[no-untyped-def]
    ran = local.run(*TWO, "--launcher", "ranks", "--slots", "2", local.program("raise SystemExit(9)"))
    first, second = (ran.outcome(host) for host in HOSTS)
    assert first == second and list(first) == KEYS
    assert (first["code"], first["class"], first["attempt"]) == (9, "user", 1)
    for number, host in enumerate(HOSTS):
        assert ran.left(host, "failure") and not (ran.output / f"hosts/{host}/opt/ml/output/success").exists()
        rows = ran.events(host)
        assert {row["host"] for row in rows} == {host}
        assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
        names = [row["event"] for row in rows]
        at = -1
        for name in ROAD:
            at = names.index(name, at + 1)
        ended = sorted(row["rank"] for row in rows if row["event"] == "rank-ended")
        assert (ended, rows[-1]["code"]) == ([2 * number, 2 * number + 1], 9)
    whole = json.loads((ran.output / "timeline.json").read_text())
    assert {"algo-1", "algo-2", "control plane"} == {row["host"] for row in whole}


SEEN = """
import json, os, sys
os.write(1, b"SEEN" + json.dumps({"arguments": sys.argv[1:], **os.environ}).encode() + b"\\n")
"""


def test_a_value_that_is_set_already_wins_over_ours(local) -> None:  # type: ignore[no-untyped-def]
    own = {"SM_MODEL_DIR": "/srv", "SM_HP_LR": "7", "OMP_NUM_THREADS": "5", "PYTHONUNBUFFERED": "0", "SM_NEW": "kept"}
    pairs = [word for name, value in own.items() for word in ("--env", f"{name}={value}")]
    hyper = '{"lr": 0.1, "z": 1, "flag": true, "a": {"k": "v"}}'
    ran = local.run(*TWO, "--launcher", "ranks", *pairs, "--hyperparameters", hyper, local.program(SEEN), "last")
    assert ran.code == 0, ran.stderr + ran.stdout
    for index, host in enumerate(HOSTS):
        (text,) = [line.partition("SEEN")[2] for line in ran.log(host).splitlines() if "SEEN" in line]
        seen = json.loads(text)
        assert {name: seen[name] for name in own} == own
        assert seen["arguments"] == ["--lr", "0.1", "-z", "1", "--flag", "True", "-a", "k=v", "last"], (
            "the file's order"
        )
        assert seen["SM_HP_FLAG"] == "true"
        assert seen["NODE_RANK"] == str(index)
        assert seen["PYTHONFAULTHANDLER"] == "1"
        assert not [name for name in seen if name.endswith("_VISIBLE_DEVICES") and name not in local.environ]


@pytest.mark.netns
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to take the network away")
def test_a_plan_needs_no_network(local) -> None:  # type: ignore[no-untyped-def]
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine makes no namespaces")
    program = local.program(SEEN)
    words = [local.python, "-m", "musterpoint", "plan", "--json", "--hosts", "2", "--launcher", "ranks", str(program)]
    with_network, without = (
        json.loads(subprocess.check_output([*before, *words], env=local.environ, cwd=local.folder))
        for before in ([], ["unshare", "--net"])
    )
    for plan in (with_network, without):
        assert [host["host"] for host in plan["hosts"]] == list(HOSTS)
        assert [host["first_rank"] for host in plan["hosts"]] == [0, 1]
    argv = [
        [process["argv"] for host in plan["hosts"] for process in host["processes"]] for plan in (with_network, without)
    ]
    assert argv[0] == argv[1]


def test_a_reused_output_directory_tells_of_the_last_run_alone(train) -> None:  # type: ignore[no-untyped-def]
    """Each run finds the report of the one before; the last is stopped."""
    output = train.base / "output"

    def found() -> list[str]:
        return sorted(path.name for path in output.iterdir() if path.is_file())

    for code in (3, 0, 5):
        train.program(f"import sys\nsys.exit({code})\n")
        assert train.run().returncode == code
        assert found() == sorted(["failure" if code else "success", "outcome.json", "timeline.json"])
        assert json.loads((output / "outcome.json").read_text())["code"] == code
    train.program(f"open({str(train.base / 'model' / 'up')!r}, 'w').close()\nimport time\ntime.sleep(600)\n")
    process = train.start()
    train.ready(process, "up")
    assert not [name for name in found() if not name.startswith(".")], "while it runs"
    process.terminate()
    process.communicate(timeout=500)
    assert (process.returncode, found()) == (143, ["outcome.json", "timeline.json"])
