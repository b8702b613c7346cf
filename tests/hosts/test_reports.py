"""What a job on two hosts leaves behind, and what its programs see: reports, timelines, variables."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

HOSTS = ("algo-1", "algo-2")
TWO = ("--hosts", "2", "--backend", "process")
KEYS = ["code", "cause", "class", "retryable", "host", "rank", "signal", "attempt", "attempts", "reason"]

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


def four_fail(local, program: str = FOUR_FAIL) -> Path:  # type: ignore[no-untyped-def]
    (local.folder / "site-packages").mkdir()
    local.program(COLLECTIVES, "site-packages/collectives.py")
    made: Path = local.program(program)
    return made


@pytest.mark.lane("suite")
def test_a_symptom_that_is_told_first_is_counted_and_the_cause_leads(local) -> None:  # type: ignore[no-untyped-def]
    """Ranks 0 and 1 on the leader's host lose their peer; the peer's own error is told a moment later."""
    ran = local.run(*TWO, "--slots", "2", "--launcher", "ranks", four_fail(local), local.folder)
    assert ran.code == 1, ran.stderr
    lines = ran.reason.splitlines()
    assert lines[:2] == ["ValueError: the cause of it all", "rank 2 (local rank 0) on algo-2, exit code 1"]
    (counted,) = {ran.left(host, "failure").splitlines()[-1] for host in HOSTS}
    assert counted in ("1 other rank failed after it (peer lost)", "2 other ranks failed after it (peer lost)")
    assert [ran.outcome(host)["class"] for host in HOSTS] == ["user", "user"]


def test_a_symptom_without_a_cause_is_one(local) -> None:  # type: ignore[no-untyped-def]
    program = four_fail(local, FOUR_FAIL.replace('raise ValueError("the cause of it all")', "time.sleep(600)"))
    ran = local.run(*TWO, "--slots", "2", "--launcher", "ranks", program, local.folder)
    assert ran.code == 1, ran.stderr
    assert "Connection closed by peer" in ran.reason
    assert (ran.outcome("algo-2")["class"], ran.outcome("algo-2")["retryable"]) == ("peer", True)


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
@pytest.mark.parametrize(("how", "code", "kind"), [("pass", 0, "done"), ("raise SystemExit(9)", 9, "user")])
def test_an_outcome_has_every_key_on_every_host(local, how: str, code: int, kind: str) -> None:  # type: ignore[no-untyped-def]
    ran = local.run(*TWO, "--launcher", "ranks", local.program(how))
    assert ran.code == code, ran.stderr
    first, second = (ran.outcome(host) for host in HOSTS)
    assert first == second
    assert list(first) == KEYS
    assert (first["code"], first["class"], first["attempt"]) == (code, kind, 1)
    present = {name: [(ran.output / f"hosts/{host}/opt/ml/output/{name}").exists() for host in HOSTS]
               for name in ("success", "failure")}  # fmt: skip
    assert present == {"success": [code == 0] * 2, "failure": [code != 0] * 2}


@pytest.mark.lane("suite")
def test_a_timeline_tells_the_whole_road_in_order(local) -> None:  # type: ignore[no-untyped-def]
    ran = local.run(*TWO, "--launcher", "ranks", "--slots", "2", local.program("raise SystemExit(9)"))
    for host in HOSTS:
        rows = ran.events(host)
        assert {row["host"] for row in rows} == {host}
        assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
        names = [row["event"] for row in rows]
        order = ["entry-point-started", "rollcall-started", "rollcall-done", "rank-started", "job-failed", "job-ended"]
        at = -1
        for name in order:
            at = names.index(name, at + 1)
        assert sorted(row["rank"] for row in rows if row["event"] == "rank-ended") == (
            [0, 1] if host == "algo-1" else [2, 3]
        )
        assert rows[-1]["code"] == 9
    whole = json.loads((ran.output / "timeline.json").read_text())
    assert {"algo-1", "algo-2", "control plane"} == {row["host"] for row in whole}


SEEN = """
import json, os, sys
os.write(1, b"SEEN" + json.dumps({"arguments": sys.argv[1:], **os.environ}).encode() + b"\\n")
"""


@pytest.mark.parametrize("launcher", ["script", "ranks", "torchrun"])
def test_a_value_that_is_set_already_wins_over_ours(local, launcher: str) -> None:  # type: ignore[no-untyped-def]
    own = {"SM_MODEL_DIR": "/mine", "SM_HP_LR": "7", "OMP_NUM_THREADS": "5", "PYTHONUNBUFFERED": "0", "SM_NEW": "kept"}
    pairs = [word for name, value in own.items() for word in ("--env", f"{name}={value}")]
    hyper = '{"lr": 0.1, "z": 1, "flag": true, "a": {"k": "v"}}'
    ran = local.run(*TWO, "--launcher", launcher, *pairs, "--hyperparameters", hyper, local.program(SEEN), "last")
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


@pytest.mark.lane("suite")
def test_a_known_secret_is_in_no_report_and_the_programs_own_output_is_untouched(train) -> None:  # type: ignore[no-untyped-def]
    train.program("import os; print(os.environ['API_TOKEN']); raise ValueError('bad: ' + os.environ['API_TOKEN'])")
    done = train.run(API_TOKEN="xyzzy-xyzzy-1234")
    assert done.returncode == 1
    assert done.stdout == b"xyzzy-xyzzy-1234\n"
    assert train.reason.startswith("ValueError: bad: ***")
    left = [path.read_text() for path in (train.base / "output").iterdir() if path.is_file()]
    assert "xyzzy" not in "".join(left)


STOPPED = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda signo, frame: sys.exit(0))
(pathlib.Path(os.environ["SM_MODEL_DIR"]) / "ready").touch()
while True:
    time.sleep(0.05)
"""


@pytest.mark.lane("suite")
@pytest.mark.parametrize("code", [143, 0])
def test_a_stop_is_one_in_the_outcome_whatever_its_code(train, code: int) -> None:  # type: ignore[no-untyped-def]
    train.program(STOPPED)
    process = train.start(MUSTER_STOP_EXIT_CODE=str(code))
    train.ready(process, "ready")
    process.terminate()
    process.communicate(timeout=500)
    assert process.returncode == code
    outcome = json.loads((train.base / "output/outcome.json").read_text())
    assert (outcome["code"], outcome["cause"], outcome["class"]) == (code, "platform", "stopped")
    assert not [name for name in ("success", "failure") if (train.base / "output" / name).exists()]


def test_a_reused_output_directory_tells_of_the_last_run_alone(train) -> None:  # type: ignore[no-untyped-def]
    """Each run finds the report of the one before; the last is stopped, and one wrote its own reason."""
    output = train.base / "output"

    def found() -> dict[str, str]:
        return {path.name: path.read_text() for path in output.iterdir() if path.is_file()}

    for code in (3, 4, 0, 5):
        train.program(f"import sys\nsys.exit({code})\n")
        assert train.run().returncode == code
        left = found()
        assert sorted(left) == sorted(["failure" if code else "success", "outcome.json", "timeline.json"])
        assert json.loads(left["outcome.json"])["code"] == code
        assert not code or f"exit code {code}" in left["failure"]
    own = f"import sys\nopen({str(output / 'failure')!r}, 'w').write('my own words')\nsys.exit(6)\n"
    train.program(own)
    assert train.run().returncode == 6
    assert found()["failure"] == "my own words"
    (train.base / "input/config/hyperparameters.json").write_text("{")
    assert train.run().returncode == 64
    assert "hyperparameters.json isn't valid JSON" in found()["failure"]
    train.program(f"open({str(train.base / 'model' / 'up')!r}, 'w').close()\nimport time\ntime.sleep(600)\n")
    process = train.start()
    train.ready(process, "up")
    assert not {"failure", "success", "outcome.json", "timeline.json"} & {*found()}, "while it runs"
    process.terminate()
    process.communicate(timeout=500)
    assert (process.returncode, sorted(found())) == (143, ["outcome.json", "timeline.json"])


def test_links_that_the_program_planted_lead_nobody_anywhere(train, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("somebody else's")
    train.program(f"""
import glob, os
os.chdir({str(train.base / "output")!r})
names = ["failure", "success", "outcome.json", "timeline.json", *glob.glob(".*"),
         f"outcome.json.{{os.getppid()}}.tmp", f"failure.{{os.getppid()}}.tmp"]
for name in names:
    if os.path.lexists(name):
        os.unlink(name)
    os.symlink({str(outside / "file")!r}, name)
raise SystemExit(7)
""")
    done = train.run()
    assert done.returncode == 7, done.stderr
    assert "exit code 7" in train.reason
    assert not (train.base / "output" / "failure").is_symlink()
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "somebody else's"
