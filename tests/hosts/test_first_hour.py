"""What a person sees who runs scripts of their own for the first time: nothing is silent, failures say what to do."""

from __future__ import annotations

import os
import resource
import subprocess

import pytest

from musterpoint.local.process_hosts import can_have_own_tree

from ..ports import free_port

ENDS_EARLY = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()

def save_checkpoint():
    dist.all_reduce(torch.zeros(1))

if rank == 0:
    save_checkpoint()
else:
    os._exit(0)  # as a program that is through: its sockets are closed, and it says nothing
"""


@pytest.mark.lane("suite")
def test_a_rank_whose_peers_had_ended_with_0(local) -> None:  # type: ignore[no-untyped-def]
    ran = local.run(
        "--hosts", "2", "--slots", "2", "--launcher", "ranks", "--backend", "process", local.program(ENDS_EARLY)
    )
    assert ran.code == 1, ran.stderr
    assert "\nranks 1–3 had ended with 0; rank 0 was still in save_checkpoint\n" in ran.reason
    assert "exit code" not in ran.reason.partition("exit code")[2], "it is said once"
    outcome = ran.outcome("algo-1")
    assert (outcome["class"], outcome["rank"], outcome["retryable"]) == ("user", 0, False)
    assert "other rank" not in outcome["reason"]


LOOKS_OFTEN = """
import musterpoint.core.supervise.watchers.waiting as waiting
waiting.PAUSES = (0.2, 600.0)
"""
ONE_GOES_ON = """
import os, time
while os.environ["RANK"] == "0":
    time.sleep(60)
"""


@pytest.mark.lane("suite")
def test_who_is_waited_for_is_said_and_who_ran_when_it_was_stopped(local) -> None:  # type: ignore[no-untyped-def]
    local.program(LOOKS_OFTEN, "sitecustomize.py")
    local.environ["PYTHONPATH"] = str(local.folder)
    ran = local.stop(
        "--hosts", "2", "--backend", "process", "--launcher", "ranks", local.program(ONE_GOES_ON),
        when="musterpoint: the ranks here have ended; waiting for algo-1, where the job still runs, for ", lines=1,
    )  # fmt: skip
    assert ran.code == 143, ran.stderr
    assert "told to stop: rank 0 still runs here" in ran.log("algo-1")
    assert "told to stop: the ranks here have ended; waiting for algo-1" in ran.log("algo-2")
    assert "waiting for" not in ran.log("algo-1")


WRITES = """
import os, helper
open("snapshot.pt", "a").write(os.environ["RANK"])
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper.py"), "a").write("# changed")
helper.work()
"""
HELPER = """
def work():
    raise ValueError("bad batch")
"""


@pytest.mark.parametrize("backend", ["netns", "process"])
def test_what_hosts_write_beside_the_code_stays_theirs(local, backend: str) -> None:  # type: ignore[no-untyped-def]
    """Neither host sees the other's files, and mine are as they were; errors name mine."""
    helper = local.program(HELPER, "helper.py")
    program = local.program(WRITES)
    ran = local.run("--hosts", "2", "--launcher", "ranks", "--backend", backend, "--on-failure", "finish", program)
    assert ran.code == 1, ran.stderr
    assert helper.read_text() == HELPER
    assert not (local.folder / "snapshot.pt").exists()
    for rank, host in enumerate(("algo-1", "algo-2")):
        kept = local.output / "hosts" / host / "opt/ml/code"
        assert {path.name: path.read_text() for path in kept.iterdir()} == {
            "snapshot.pt": str(rank), "helper.py": HELPER + "# changed",
        }  # fmt: skip
        assert f'File "{helper}", line 3, in work' in ran.log(host)
        assert f'File "{program}", line 5, in <module>' in ran.log(host)
    assert 'File "helper.py", line 3, in work' in ran.reason
    assert "written beside the code: helper.py (every host), snapshot.pt (every host); kept in " in ran.stderr


SEES = """
import os, sys
open("/opt/ml/model/model.pt", "w").write("weights")
print(os.getcwd(), os.environ["SM_MODEL_DIR"], len(os.listdir("/sys/class/net")), flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(not can_have_own_tree(), reason="mounts need root")
def test_one_host_has_the_platforms_paths_and_this_machines_network(local) -> None:  # type: ignore[no-untyped-def]
    ran = local.run("--launcher", "script", local.program(SEES))
    assert ran.code == 137
    assert f"/opt/ml/code /opt/ml/model {len(os.listdir('/sys/class/net'))}" in ran.stdout.splitlines()
    assert (local.output / "hosts/algo-1/opt/ml/model/model.pt").read_text() == "weights"
    assert "Starting: 1 host, process:" in ran.stderr


@pytest.mark.lane("suite")
def test_what_no_python_runs_is_refused_before_there_are_hosts(local) -> None:  # type: ignore[no-untyped-def]
    for words in ((local.program("{}", "nb.ipynb"),), ("--python", "python9", local.program(""))):
        ran = local.run(*words)
        assert (ran.code, (local.output / "hosts").exists()) == (64, False), ran.stderr


def test_too_few_file_descriptors(local) -> None:  # type: ignore[no-untyped-def]
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))

    command = local.command("--backend", "process", "--hosts", "4", "--launcher", "script", local.program(""))
    done = subprocess.run(
        command, env=local.environ, preexec_fn=few, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 64, done.stderr
    assert "no file descriptor is left: this process may have 16 (ulimit -n)" in done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.lane("suite")
def test_a_job_s_directory_has_the_hosts_of_its_last_start(local) -> None:  # type: ignore[no-untyped-def]
    """Two starts of one name in one directory, the second of one host: its report has that host alone."""
    program = local.program("import os, sys\nsys.exit(7 if os.environ.get('NODE_RANK') == '1' else 0)\n")
    launch = [local.python, "-m", "musterpoint", "launch", "--job-name", "two", "--launcher", "script"]
    hosts = ["--nnodes", "2", "--rollcall-leader", f"127.0.0.1:{free_port()}", "--node-rank"]
    both = [
        subprocess.Popen([*launch, *hosts, rank, program], env=local.environ, cwd=local.folder, stderr=subprocess.PIPE)
        for rank in "01"
    ]
    assert [(process.communicate()[1], process.returncode)[1] for process in both] == [7, 7]
    assert sorted(os.listdir(local.folder / "muster-jobs/two/hosts")) == ["node-rank-0", "node-rank-1"]
    subprocess.run([*launch, program], env=local.environ, cwd=local.folder, check=True)
    assert len(os.listdir(local.folder / "muster-jobs/two/hosts")) == 1
    report = subprocess.run(
        [local.python, "-m", "musterpoint", "report", "muster-jobs/two"], env=local.environ, cwd=local.folder,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "The job went well" in report.stdout and "node-rank" not in report.stdout, report.stdout


def test_a_console_script_is_found_on_path(local) -> None:  # type: ignore[no-untyped-def]
    command = local.program("#!/bin/sh\necho trained by $0\n", "my-trainer")
    command.chmod(0o755)
    local.environ["PATH"] = f"{command.parent}:{local.environ['PATH']}"
    elsewhere = command.parent / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        local.command("--backend", "process", "my-trainer"), env=local.environ, cwd=elsewhere, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert f"trained by {command}" in done.stdout


def test_the_hint_is_the_line_below_the_error(local) -> None:  # type: ignore[no-untyped-def]
    program = local.program("import os\nos.environ['LOCAL_RANK']\n")
    words = [local.python, "-m", "musterpoint", "launch", program]
    done = subprocess.run(words, env=local.environ, cwd=local.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    error, hint, file = done.stderr.splitlines()[-3:]
    assert error.startswith("musterpoint: KeyError: 'LOCAL_RANK'; rank 0")
    assert hint.startswith("musterpoint: hint: launcher script starts the program without ranks")
    assert file.startswith("musterpoint: the whole reason is in ")


SAVES = """
import os
for name in ("SM_MODEL_DIR", "SM_OUTPUT_DIR", "SM_OUTPUT_DATA_DIR", "SM_CHECKPOINT_DIR", "SM_INPUT_DIR"):
    assert os.path.isdir(os.environ[name]), name
open(os.path.join(os.environ["SM_MODEL_DIR"], "model"), "w").write("trained")
"""


@pytest.mark.lane("suite")
@pytest.mark.parametrize("hosts", ["1", "2"])
@pytest.mark.parametrize("platform", ["sagemaker", "slurm", "kubernetes"])
def test_every_directory_is_there_where_jobs_usually_are(local, hosts: str, platform: str) -> None:  # type: ignore[no-untyped-def]
    """In muster-jobs below the working directory: other tests give a place of their own."""
    program = local.program(SAVES)
    words = [local.python, "-m", "musterpoint", "local", "--backend", "process", "--hosts", hosts, "--job-name", "mine"]
    more = [] if platform == "sagemaker" else ["--platform", platform]
    done = subprocess.run(
        [*words, *more, "--launcher", "script", program], env=local.environ, cwd=local.folder, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert list((local.folder / "muster-jobs" / "mine").rglob("model/model")), done.stderr
