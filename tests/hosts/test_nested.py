"""Launches of ours as a job's program, which is then read as the job, and in a job's script, which lends them hosts."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from .by_hand import Processes, leaving_none, meeting
from .conftest import Local

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
    assert names.count("rank-started") == 1, "the launcher's line is the job"


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
    local: Local, one_file: Path, ending: str, code: int, said: str
) -> None:
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


@pytest.mark.lane("suite")
def test_a_script_with_two_launches(local: Local, one_file: Path) -> None:
    """Each is an entry point of its own: it meets its hosts, marks its lines, and its ranks are in the job's report."""
    command = f"{local.python} launcher.py --muster-slots 2 --muster-launcher ranks --train-script train_ddp.py"
    shell = local.program(f"{command} --first || exit\n{command} --second\necho after them\n", "run.sh")
    words = ("--hosts", "2", "--backend", "process", "--launcher", "script", "--log-prefix", "rank", shell)
    ran = local.run(*words)
    assert ran.code == 0, ran.stderr + ran.stdout
    for host, first in (("algo-1", 0), ("algo-2", 2)):
        log = ran.log(host)
        for rank in (first, first + 1):
            before, after = (f"[rank {rank}] rank {rank} of 4 ['{word}']\n" for word in ("--first", "--second"))
            assert log.index(before) < log.index(after) < log.index("after them")
        assert f"[rank {first // 2}] [rank" not in log, "lines are marked once"
        ended = [event["rank"] for event in ran.events(host) if event["event"] == "rank-ended"]
        assert sorted(ended) == sorted([first // 2, *2 * [first, first + 1]])


CAUSES = {
    "it leads": ("{}", 1, "ArithmeticError: loss is NaN\nrank 1 (local rank 0) on algo-2, exit code 1"),
    "a word after it": ("{} && exit; c=$?; echo training failed; exit $c", 1, "ArithmeticError: loss is NaN\nrank 1"),
    "a Python around it": (
        "PYTHON -c 'import subprocess, sys; subprocess.run(sys.argv[1:], check=True)' {}", 1, "ArithmeticError: loss is"
    ),
    "a command after it": ("{} || true; mv none there", 1, "mv: cannot stat 'none': No such file or directory\nrank "),
    "it is handled": ("{} || echo and on", 0, ""),
    "another code": ("{} || exit 9", 9, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_what_ended_the_script(local: Local, one_file: Path, case: str) -> None:
    around, code, reason = CAUSES[case]
    command = f"{local.python} {one_file} --train-script {local.folder}/train_ddp.py --fail"
    shell = local.program(around.replace("PYTHON", str(local.python)).format(command) + "\n", "run.sh")
    ran = local.run("--hosts", "2", "--backend", "process", "--launcher", "script", shell)
    assert ran.code == code, ran.stderr
    assert not code or ran.reason.startswith(reason), ran.reason
    if "exit code 1" in reason:
        outcomes = [ran.outcome(host) for host in ("algo-1", "algo-2")]
        assert outcomes[0] == outcomes[1]
        assert (outcomes[0]["host"], outcomes[0]["rank"], outcomes[0]["class"]) == ("algo-2", 1, "user")
        assert "other rank" not in ran.reason


@pytest.mark.parametrize("hosts", [1, pytest.param(2, marks=pytest.mark.lane("suite"))])
def test_two_launches_at_once(local: Local, one_file: Path, hosts: int) -> None:
    """A sweep on one host; on several the second one is refused, and the job is what the script makes of that."""
    command = f"{local.python} launcher.py --muster-launcher ranks --muster-slots 2 --train-script train_ddp.py"
    waits = f"{command} --wait > out & while ! grep -qs waits out; do sleep 0.05; done"
    first = waits if hosts == 2 else f"{command} --a &"
    ends = "c=$?; kill $!; wait $!; cat out; exit $c" if hosts == 2 else "wait $!"
    shell = local.program(f"{first}\n{command} --b\n{ends}\n", "run.sh")
    ran = local.run("--hosts", str(hosts), "--backend", "process", "--launcher", "script", shell)
    if hosts == 1:
        assert ran.code == 0, ran.stderr + ran.stdout
        assert all(f"rank {rank} of 2 ['--{word}']" in ran.log("algo-1") for rank in (0, 1) for word in "ab")
    else:
        assert ran.code == 64, ran.stderr + ran.stdout
        assert ran.reason.startswith("muster: a launch of this job's program runs already on algo-"), ran.reason


class Hosts(Processes):
    """Two hosts on loopback, each with an entry point of its own."""

    def start(self, script: str) -> list[subprocess.Popen[str]]:
        names = {"SM_HOSTS": json.dumps([*NODES]), "SAGEMAKER_BASE_DIR": str(self.folder / "none")}
        names.update(meeting(self.folder / "names", NODES))
        command = (self.python, "-m", "musterpoint", "launch", "--launcher", "script", script)
        return [self.popen(*command, environ={**names, "SM_CURRENT_HOST": node}) for node in NODES]


NODES = {"node-1": "127.0.0.41", "node-2": "127.0.0.42"}
SAVES = """
import os, signal, sys, time

def save(*_):
    time.sleep(1)
    print("saved", flush=True)
    os._exit(0)

for signo in (signal.SIGTERM, signal.SIGINT):
    signal.signal(signo, save)
print("waits", flush=True)
while True:
    time.sleep(0.05)
"""
hosts = leaving_none(Hosts)


def until(process: subprocess.Popen[str], word: str, lines: int) -> str:
    """What a process has said until ``word`` has stood in so many of its lines."""
    assert process.stdout is not None
    said = line = process.stdout.readline()
    while line and said.count(word) < lines:
        said += (line := process.stdout.readline())
    return said


LAUNCH = "PYTHON -m musterpoint launch --launcher ranks --slots 2 train.py"
WRAPPERS = {
    "a shell": f"{LAUNCH}\n",
    "Python": f"PYTHON -c 'import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))' {LAUNCH}\n",
    "make": f"printf 'all:\\n\\t{LAUNCH}\\n' > Makefile.$SM_CURRENT_HOST; exec make -f Makefile.$SM_CURRENT_HOST\n",
}


STOPS = [(name, signo) for name in WRAPPERS for signo in (signal.SIGTERM, signal.SIGINT)]


@pytest.mark.parametrize(
    ("wrapper", "signo"), [*STOPS[:3], pytest.param(*STOPS[3], marks=pytest.mark.lane("suite")), *STOPS[4:]]
)
def test_a_stop_in_the_middle_of_a_checkpoint_comes_once(hosts: Hosts, wrapper: str, signo: signal.Signals) -> None:
    """The other host's launch hears of it twice. Who waits for a launch hears later: Python and make would end it."""
    (hosts.folder / "train.py").write_text(SAVES)
    (hosts.folder / "run.sh").write_text(WRAPPERS[wrapper].replace("PYTHON", hosts.python))
    started = hosts.start("run.sh")
    lines = [until(process, "waits", 2) for process in started]
    started[0].send_signal(signo)
    said = [text + process.communicate(timeout=500)[0] for text, process in zip(lines, started, strict=True)]
    assert [process.returncode for process in started] == 2 * [143 if signo == signal.SIGTERM else 130], said
    assert [text.count("saved") for text in said] == [2, 2], said


def test_a_launch_ends_with_the_job_above_it(hosts: Hosts) -> None:
    (hosts.folder / "train.py").write_text(SAVES)
    (hosts.folder / "run.sh").write_text(WRAPPERS["a shell"].replace("PYTHON", hosts.python))
    started = hosts.start("run.sh")
    for process in started:
        until(process, "waits", 2)
    started[1].kill()
    said = started[0].communicate(timeout=500)[0]
    assert started[0].returncode == 76, said
    assert "saved" not in started[1].communicate(timeout=500)[0]


@pytest.mark.parametrize("platform", ["kubernetes", "slurm"])
def test_a_platform_that_names_no_hosts_is_asked_once(local: Local, platform: str) -> None:
    """What the job was told of its hosts holds for its launches, and no variable of its own ranks is a platform's."""
    local.program("import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n", "train.py")
    launch = f"{local.python} -m musterpoint launch --launcher ranks --slots 1 {local.folder}/train.py\n"
    words = ("--hosts", "2", "--platform", platform, "--backend", "process", "--launcher", "ranks", "--slots", "1")
    ran = local.run(*words, local.program(launch, "run.sh"))
    assert ran.code == 0, ran.stderr + ran.stdout
    assert all(f"rank {rank} of 2" in ran.stdout for rank in (0, 1)), ran.stdout
