"""``train`` whose entry point is our own one-file launcher, and whose entry point is the user's own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

DDP = """
import os, sys, time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if "--meet" in sys.argv:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    # torch may abort (SIGABRT) at the exit of a process whose gloo group is still there, whatever its code was to be
    dist.barrier()
    dist.destroy_process_group()
    size = int(total.item())
print("rank", rank, "of", size, sys.argv[1:], flush=True)
if "--fail" in sys.argv and rank == 1:
    raise ArithmeticError("loss is NaN")
if "--exit" in sys.argv:
    sys.exit(7 if rank == 1 else time.sleep(600))
if "--wait" in sys.argv:
    import signal
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(2), print("saved", flush=True), os._exit(0)))
    print("waits", flush=True)
    while True:
        time.sleep(0.05)
"""


@pytest.fixture
def one_file(local) -> Path:  # type: ignore[no-untyped-def]
    path: Path = local.folder / "launcher.py"
    local.program(DDP, "train_ddp.py")
    command = [local.python, "-m", "musterpoint", "bundle", "-o", str(path)]
    subprocess.run(command, env=local.environ, check=True, capture_output=True)
    return path


def words(launcher: Path, *more: str) -> tuple[str | Path, ...]:
    return ("--hosts", "2", "--backend", "process", "--launcher", "script", "--hyperparameters",
            '{"train-script": "train_ddp.py", "epochs": 3}', launcher, *more)  # fmt: skip


def run(local, launcher: Path, *more: str):  # type: ignore[no-untyped-def]
    return local.run(*words(launcher, *more))


@pytest.mark.lane("suite")
def test_our_launcher_as_entry_point(local, one_file: Path) -> None:  # type: ignore[no-untyped-def]
    ran = run(local, one_file, "--meet")
    assert ran.code == 0, ran.stderr + ran.stdout
    assert "rank 0 of 2 ['--epochs', '3', '--meet']" in ran.log("algo-1")
    assert "rank 1 of 2 ['--epochs', '3', '--meet']" in ran.log("algo-2")
    names = [event["event"] for event in ran.events("algo-2")]
    assert names.count("rollcall-started") == 1, "there is one roll call"
    assert names.count("handed-over") == 1


def test_in_a_job_of_sdk_v3_it_hands_on_the_sdks_spelling(local, one_file: Path) -> None:  # type: ignore[no-untyped-def]
    given = {"train-script": "train_ddp.py", "boolean": True, "list": [1, "a"], "none": None, "t": True}
    (local.folder / "drivers").mkdir()
    ran = local.run("--backend", "process", "--launcher", "script", "--channel", f"sm_drivers={local.folder}/drivers",
                    "--hyperparameters", json.dumps(given), one_file, "--muster-launcher=ranks")  # fmt: skip
    assert ran.code == 0, ran.stderr
    words = ["--boolean", "true", "--list", '[1, "a"]', "--none", "null", "--t", "true"]
    assert f"rank 0 of 1 {words}" in ran.log("algo-1")


@pytest.mark.lane("suite")
@pytest.mark.parametrize(
    ("flag", "code", "said"), [("--fail", 1, "ArithmeticError: loss is NaN"), ("--exit", 7, "exit code 7")]
)
def test_its_ranks_failures_are_the_jobs(local, one_file: Path, flag: str, code: int, said: str) -> None:  # type: ignore[no-untyped-def]
    ran = run(local, one_file, flag)
    assert ran.code == code, ran.stderr
    assert said in ran.reason
    assert "rank 1 (local rank 0) on algo-2" in ran.reason
    assert ran.left("algo-1", "failure") == ran.left("algo-2", "failure")


OWN = {
    "a wrong option": ("", ("--muster-slots", "x"), 64, "--muster-slots='x': expected a whole number, 1 to 65536"),
    "a missing script": ("", ("--muster-launcher=ranks", "--train-script=trian.py"), 64, "trian.py"),
    "a launcher that isn't here": ("PATH=/none; ", ("--muster-launcher=mpi",), 72, "mpirun"),
    "a working directory that is gone": (
        'd=$(mktemp -d); cd "$d"; rmdir "$d"; ',
        (),
        64,
        "the working directory was removed",
    ),
}


AROUND = [(name, "{}") for name in OWN] + [
    ("a wrong option", "{} || exit"),
    ("a wrong option", 'python -c "import subprocess as s, sys; s.run(sys.argv[1:], check=True)" {}'),
]


@pytest.mark.parametrize(("name", "around"), AROUND)
def test_its_own_failures_are_the_jobs(local, one_file: Path, name: str, around: str) -> None:  # type: ignore[no-untyped-def]
    """Also where a script stands in front of it, as long as that ends as it does."""
    before, words, code, said = OWN[name]
    command = f"{local.python} {one_file} --train-script {local.folder}/train_ddp.py " + " ".join(words)
    shell = local.program(f"{before}{around.replace('python', local.python).format(command)}\n", "run.sh")
    ran = local.run("--hosts", "2", "--backend", "process", "--launcher", "script", shell)
    assert ran.code == code, ran.stderr
    lead, where = ran.reason.splitlines()[:2]
    assert lead.startswith("muster: ") and said in lead, ran.reason
    assert where.startswith("on algo-")
    assert "peer lost" not in ran.reason
    for host in ("algo-1", "algo-2"):
        outcome = ran.outcome(host)
        assert (outcome["code"], outcome["cause"], outcome["rank"]) == (code, "muster", None)
        assert outcome["class"] == ("infra" if code == 70 else "user")
        assert outcome["reason"] == ran.left(host, "failure")


@pytest.mark.parametrize("platform", ["sagemaker", pytest.param("azureml", marks=pytest.mark.lane("suite"))])
def test_train_below_a_job_is_refused(local, platform: str) -> None:  # type: ignore[no-untyped-def]
    """It reads the same job, and would start the script that calls it."""
    shell = local.program(f"{local.python} -m musterpoint.cli.train\n", "run.sh")
    ran = local.run("--hosts", "2", "--platform", platform, "--backend", "process", "--launcher", "script", shell)
    assert ran.code == 64, ran.stderr
    assert ran.reason.startswith("muster: train: a program of a musterpoint job called this"), ran.reason
    assert "`muster launch SCRIPT`" in ran.reason


@pytest.mark.parametrize(("ending", "code", "said"), [("echo fine", 0, ""), ("exit 64", 64, "rank 0")])
def test_a_failure_of_its_own_that_the_program_goes_on_from(
    local, one_file: Path, ending: str, code: int, said: str
) -> None:  # type: ignore[no-untyped-def]
    command = f"{local.python} {one_file} --muster-launcher=ranks --train-script"
    shell = local.program(f"{command} none.py || true\n{command} train_ddp.py\n{ending}\n", "run.sh")
    ran = local.run("--backend", "process", "--launcher", "script", shell)
    assert ran.code == code, ran.stderr
    assert ran.outcome("algo-1")["cause"] == ("user" if code else "")
    assert ran.outcome("algo-1")["reason"].startswith(said)


def test_its_ranks_have_the_whole_stop_budget(local, one_file: Path) -> None:  # type: ignore[no-untyped-def]
    ran = local.stop(*words(one_file, "--wait"), when="waits", lines=2)
    assert ran.code == 143, ran.stderr
    assert "saved" in ran.log("algo-1")
    assert "saved" in ran.log("algo-2")


def test_a_shell_script_around_it_goes_on_afterwards(local, one_file: Path) -> None:  # type: ignore[no-untyped-def]
    shell = local.program(
        f"{local.python} launcher.py --train-script train_ddp.py --first --meet || exit\n"
        f"{local.python} launcher.py --train-script train_ddp.py --second --meet || exit\n"
        "echo after them\n",
        "run.sh",
    )
    ran = local.run("--hosts", "2", "--backend", "process", "--launcher", "script", shell)
    assert ran.code == 0, ran.stderr + ran.stdout
    for host in ("algo-1", "algo-2"):
        log = ran.log(host)
        assert log.index("['--first', '--meet']") < log.index("['--second', '--meet']") < log.index("after them")
