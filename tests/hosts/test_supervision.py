"""One host under ``train``: how its processes are stopped, how they end, and that nothing of them stays."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from musterpoint.core.processes import process_tree

from .conftest import eventually

SAVES = """
import os, pathlib, signal, sys, time
folder, rank = pathlib.Path(os.environ["SM_MODEL_DIR"]), os.environ.get("RANK", "0")

def save(signo, frame):
    if not os.environ.get("TWICE"):
        signal.signal(signo, signal.SIG_DFL)  # as many handlers do: a second signal ends the program
    print("saving", flush=True)
    time.sleep(0.3)
    print("still saving", flush=True)
    (folder / f"checkpoint-{rank}").touch()
    sys.exit(0)

signal.signal(getattr(signal, os.environ.get("SAVES_ON", "SIGTERM")), save)
(folder / f"ready-{rank}").touch()
while True:
    time.sleep(0.05)
"""


def stop(train, process: subprocess.Popen[bytes], *signals: int) -> int:  # type: ignore[no-untyped-def]
    """Sends ``signals`` and returns the exit code. Two of a kind at once are one, so a program has to say "interrupted"
    before it gets its second.
    """
    for before, signo in zip((0, *signals), signals):
        if signo == before:
            train.ready(process, "interrupted")
        process.send_signal(signo)
    process.communicate(timeout=500)
    return process.returncode


@pytest.mark.lane("suite")
@pytest.mark.parametrize(
    ("signo", "code", "options"),
    [
        (signal.SIGTERM, 143, {}),
        (signal.SIGHUP, 143, {}),
        (signal.SIGQUIT, 143, {}),
        (signal.SIGINT, 130, {"SAVES_ON": "SIGINT"}),
        (signal.SIGTERM, 143, {"SAVES_ON": "SIGUSR2", "MUSTER_STOP_SIGNAL": "USR2"}),
        (signal.SIGTERM, 0, {"MUSTER_STOP_EXIT_CODE": "0"}),
        (signal.SIGUSR1, 0, {"SAVES_ON": "SIGUSR1"}),
        (signal.SIGUSR2, 0, {"SAVES_ON": "SIGUSR2"}),
    ],
)
def test_every_rank_is_told(train, signo: int, code: int, options: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVES)
    process = train.start(MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="3", **options)
    train.ready(process, "ready-0", "ready-1", "ready-2")
    assert stop(train, process, signo) == code
    assert all(train.left(f"checkpoint-{rank}") for rank in range(3))
    outcome = json.loads((train.base / "output" / "outcome.json").read_text())
    done = signo in (signal.SIGUSR1, signal.SIGUSR2)  # which are the program's own
    assert (outcome["code"], outcome["class"]) == (code, "done" if done else "stopped")
    assert (train.base / "output" / "success").exists() == done
    assert not (train.base / "output" / "failure").exists()


INHERITS = """
import os, signal, sys
how, *words = sys.argv[1:]
if how == "blocked":
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
for name in ("SIGTERM", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGCHLD") if how == "ignored" else ():
    signal.signal(getattr(signal, name), signal.SIG_IGN)
os.execvp(words[0], words)
"""
"""Becomes a program as some shells and schedulers start it."""
HOW = ["blocked", "ignored"]


@pytest.mark.lane("suite")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("signo", "code", "heard"), [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGINT, 130, "SIGINT"),
                         (signal.SIGUSR1, 0, "SIGUSR1")])  # fmt: skip
def test_a_signal_is_heard_however_we_were_started(train, how: str, signo: int, code: int, heard: str) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVES)
    process = train.start(train.python, "-c", INHERITS, how, MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="2", SAVES_ON=heard)
    train.ready(process, "ready-0", "ready-1")
    assert stop(train, process, signo) == code
    assert all(train.left(f"checkpoint-{rank}") for rank in range(2))


STATUS = """
for line in open("/proc/self/status"):
    if line.startswith(("SigBlk", "SigIgn")):
        print(*line.split())
"""


def as_started(*words: str) -> list[str]:
    """How a program finds its signals that these words start."""
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


@pytest.mark.lane("suite")
@pytest.mark.parametrize("launcher", ["script", "ranks", "torchrun"])
@pytest.mark.parametrize("how", HOW)
def test_ranks_have_their_signals_as_a_program_expects_them(train, how: str, launcher: str) -> None:  # type: ignore[no-untyped-def]
    train.program(STATUS)
    ran = train.run(train.python, "-c", INHERITS, how, MUSTER_LAUNCHER=launcher)
    assert ran.stdout.decode().splitlines() == as_started(train.python, "-c", STATUS)


@pytest.mark.parametrize("launcher", ["script", "ranks"])
def test_ranks_are_below_nohup_where_we_are(train, launcher: str) -> None:  # type: ignore[no-untyped-def]
    train.program(STATUS)
    ran = train.run("nohup", MUSTER_LAUNCHER=launcher)
    assert ran.stdout.decode().splitlines() == as_started("nohup", train.python, "-c", STATUS)


ENTRIES = {
    "launch": "{python} -m musterpoint launch {program}",
    "torchrun": "{python} -m musterpoint torchrun {program}",
    "local": "{python} -m musterpoint local --output {folder}/job {program}",
    "train": "{python} -m musterpoint.cli.train",
    "the container's train": "{root}/container/train",
    "one file": "{python} -m musterpoint bundle -o launcher.py >/dev/null; {python} -IS launcher.py {program}",
    "the driver": "SM_ENTRY_SCRIPT={program} {python} -m musterpoint.cli.driver",
}


@pytest.mark.lane("suite")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_ends_with_its_program(train, entry: str, how: str, root: Path) -> None:  # type: ignore[no-untyped-def]
    train.program("import subprocess, sys\nsys.exit(subprocess.call(['sh', '-c', 'exit 7']))\n")
    folder = train.base.parent
    folder.joinpath("python3").symlink_to(train.python)
    python = shlex.quote(train.python)
    command = ENTRIES[entry].format(python=python, program=train.base / "code" / "program.py", folder=folder, root=root)
    inside = [train.python, "-c", INHERITS, how, "sh", "-c", f"cd {folder}; {command}"]
    environ = {**train.environ, "PATH": f"{folder}:{train.environ['PATH']}"}
    process = subprocess.Popen(inside, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    train.started.append(process)
    said = process.communicate(timeout=500)[1]
    assert process.returncode == 7, said


FLOODS = (
    SAVES.replace("while True:\n    time.sleep(0.05)\n", "while True:\n    os.write(1, b'x' * 4095 + b'\\n')\n")
    .replace('print("saving", flush=True)', "")
    .replace('print("still saving", flush=True)', "")
)


def test_a_stop_comes_through_when_nobody_reads_our_output(train) -> None:  # type: ignore[no-untyped-def]
    train.program(FLOODS)
    read, write = os.pipe()
    process = train.start(stdout=write, MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="4")
    os.close(write)
    train.ready(process, *(f"ready-{rank}" for rank in range(4)))
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    train.ready(process, *(f"checkpoint-{rank}" for rank in range(4)))
    process.communicate(timeout=500)
    assert process.returncode == 143
    os.close(read)


CLEAN = '[ ! -e "$SM_MODEL_DIR/checkpoint-0" ] || touch "$SM_MODEL_DIR/cleaned"'
NEXT = 'touch "$SM_MODEL_DIR/next"'
# timeout signals its child and then its group, which the child is in
SHELLS = {
    "without exec": "{run}\n{next}\n",
    "that asks for its code": "{run}; code=$?; {next}\n",
    "that acts on its failure": "{run} || {next}; {next}\n",
    "that goes on in either case": "if {run}; then {next}; else {next}; fi\n",
    "in a loop over seeds": 'for seed in 1 2; do [ "$seed" = 1 ] || {next}; {run}; done\n',
    "in a pipeline whose code counts": "{run} | cat; {next}\n",
    "in a function in a subshell": "f() {{ ( {run}; {next} ); {next}; }}; f; {next}\n",
    "in shells of three kinds": "bash -c 'sh -c \"{run}; exit 3\"; exit $?'; {next}\n",
    "whose output is kept": "text=$({run}); {next}\n",
    "whose output is read": "while read -r line; do echo $line; done < <({run}); {next}\n",
    "whose output a loop reads that has more to do": "{run} | {{ while read -r line; do :; done; {next}; }}; {next}\n",
    "that waits for its helper, too": "sleep 100 & helper=$!\n{run} & pid=$!\n"
    "wait -n; kill $helper $pid; wait; {next}\n",
    "that looks after its helper": "sleep 100 & helper=$!\n{run} & pid=$!\nwhile kill -0 $pid 2>/dev/null; do\n"
    "kill -0 $helper || {{ kill $pid; exit 3; }}; sleep 0.05; done; wait $pid; {next}\n",
    "that reads a FIFO": "mkfifo fifo; cat fifo & {run} > fifo 2>&1; {next}\n",
    "whose output goes into a FIFO": "mkfifo fifo; tee log < fifo & exec > fifo 2>&1; {run}; {next}\n",
    "under another user's name": "su root -s /bin/bash -c '{run}; {next}'; {next}\n",
    "as another user with a trap": "runuser -u root -- bash -c 'trap : EXIT; {run}; {next}'; {next}\n",
    "under script": "script -qc '{run}; exit 3' /dev/null; {next}\n",
    "beside a shell that it could talk to": "coproc W {{ while read -r l; do :; done; }}; {run}; {next}\n",
    "whose output a coprocess takes": "coproc W {{ cat > got; }}; {run} >&${{W[1]}}; {next}\n",
    "that asks for something else meanwhile": "{run} & pid=$!; while kill -0 $pid 2>/dev/null; do\n"
    "read -t 0.1 < <(sleep 1); done; {next}\n",
    "below one that ignores the signal": "python3 -c 'import signal, sys, os; signal.signal(15, signal.SIG_IGN); '\\\n"
    "'os.system(\"{run}\")'; {next}\n",
    "in a namespace": "unshare -f {run}; {next}\n",
    "with job control": "set -m; bash -c '{run}; {next}'; {next}\n",
    "with exec": "exec {run}\n",
    "with a trap": "trap 'kill $pid; wait $pid' TERM\n{run} & pid=$!\nwait $pid\n",
    "with a trap at its end": "trap '{clean}' EXIT\n{run}\n",
    "with a trap at its end, under timeout": "trap '{clean}' EXIT\nTWICE=1 timeout 600 {run}\n",
    "with a trap for its group": 'trap "kill 0" EXIT\n{run}\n',
    "with a trap that ends": "trap '{clean}; exit 0' TERM\n{run} & wait\n",
    "with a trap that waits": "trap 'wait $pid; {clean}; exit 143' TERM\n{run} & pid=$!\nwait $pid\n",
    "with a trap, as its last command": "trap '{clean}; exit 143' TERM\n{run}\n",
    "with a trap, whose output it reads": "trap '{clean}' EXIT\nwhile read -r line; do echo $line; done < <({run})\n",
    "with a trap and job control": "trap '{clean}; exit 143' TERM\nset -m\n{run} & wait $!\n",
    "that passes it on": 'term() {{ kill -TERM "$pid"; wait "$pid"; exit 0; }}\ntrap term TERM\n{run} & pid=$!\n'
    'wait "$pid"\n',
    "that passes all on": 'for s in TERM INT; do trap "kill -$s \\$pid; wait \\$pid" $s; done\n'
    "{run} & pid=$!\nwait $pid\n",
    "in a shell that traps": "bash -c 'trap : EXIT; {run}; exit $?'\nexit $?\n",
    "in shells that trap": "trap '{clean}' EXIT\nbash -c 'trap \"sleep 0.1\" TERM; {run}; exit $?'\n",
    "in a pipeline": "{run} 2>&1 | cat | tee /dev/null\n",
    "under timeout": "TWICE=1 timeout 600 {run}\n",
    "with its output in a process of its own": "exec > >(tee /dev/null)\n{run}\n",
    "in a subshell": "( bash -c '{run}; true'; true )\n",
    "beside a loop in the background": "(while true; do sleep 1; done) &\n{run}\n",
}


def started_by_a_script(train, text: str, program: str = SAVES) -> subprocess.Popen[bytes]:  # type: ignore[no-untyped-def]
    """Starts a script whose ``{run}`` runs ``program``, and waits until that is ready."""
    train.program(program, "saves.py")
    text = text.format(run=f"{train.python} saves.py", clean=CLEAN, next=NEXT)
    train.program(f"#!/bin/bash\n{text}", "run.sh")
    process: subprocess.Popen[bytes] = train.start()
    train.ready(process, "ready-0")
    return process


@pytest.mark.lane("suite")
@pytest.mark.parametrize("how", SHELLS)
def test_a_program_behind_a_shell_saves_its_checkpoint(train, how: str) -> None:  # type: ignore[no-untyped-def]
    process = started_by_a_script(train, SHELLS[how])
    began = time.monotonic()
    assert stop(train, process, signal.SIGTERM) == 143
    assert train.left("checkpoint-0")
    assert not train.left("next"), "a line behind the program ran"
    assert train.left("cleaned") == ("{clean}" in SHELLS[how]), "the cleanup comes behind the checkpoint"
    assert time.monotonic() - began < 60, "the stop's grace is for programs that need it"


FAILS = '[ "$RANK" = 0 ] || { until [ -e "$SM_MODEL_DIR/ready-0" ]; do sleep 0.1; done; exit 7; }'


@pytest.mark.parametrize("how", SHELLS)
def test_a_program_behind_a_shell_saves_when_another_rank_has_failed(train, how: str) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVES, "saves.py")
    script = SHELLS[how].format(run=f"{train.python} saves.py", clean=CLEAN, next=NEXT)
    train.program(f"#!/bin/bash\n{FAILS}\n{script}", "run.sh")
    process = train.start(MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="2")
    process.communicate(timeout=500)
    assert process.returncode == 7
    assert train.left("checkpoint-0") and not train.left("next")
    assert train.left("cleaned") == ("{clean}" in SHELLS[how])


FEEDS = """
import os, pathlib, signal, sys
folder, told = pathlib.Path(os.environ["SM_MODEL_DIR"]), []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
(folder / "ready-0").touch()
for number, line in enumerate(sys.stdin):
    if told and number % 3 == 0:
        break
(folder / "checkpoint-0").touch()
"""


def test_a_program_that_a_shell_feeds_ends_its_batch(train) -> None:  # type: ignore[no-untyped-def]
    process = started_by_a_script(train, "while :; do echo x; sleep 0.1; done | {run}; {next}\n", FEEDS)
    assert stop(train, process, signal.SIGTERM) == 143
    assert train.left("checkpoint-0") and not train.left("next")


@pytest.mark.parametrize("then", ["", " 2>&1 | tee log", " & wait $!"])
def test_how_a_program_ended_is_told_though_its_shell_could_not_pass_it_on(train, then: str) -> None:  # type: ignore[no-untyped-def]
    fails = SAVES.replace("sys.exit(0)", "raise OSError('no space left')")
    process = started_by_a_script(train, f"{{run}}{then}\n{{next}}\n", fails)
    assert stop(train, process, signal.SIGTERM) == 143
    outcome = json.loads((train.base / "output" / "outcome.json").read_text())
    assert "OSError: no space left" in outcome["reason"]


def test_no_shell_stays_stopped_when_we_are_killed(train, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pids = tmp_path / "pids"
    inner = f"echo $$ >> {pids}; {{run}} & echo $! > {pids}-program; wait $!; exit 3"
    slow = SAVES.replace("time.sleep(0.3)", "time.sleep(600)")
    process = started_by_a_script(train, f"echo $$ >> {pids}\nbash -c '{inner}'\n{{next}}\n", slow)
    shells = [int(pid) for pid in pids.read_text().split()]
    process.send_signal(signal.SIGTERM)
    eventually(lambda: all((stat := process_tree.read_stat(pid)) is not None and stat.state == "T" for pid in shells))
    process.kill()
    process.communicate(timeout=500)
    eventually(lambda: all((stat := process_tree.read_stat(pid)) is None or stat.state in "ZX" for pid in shells))
    assert not train.left("next")
    process_tree.send(
        int(Path(f"{pids}-program").read_text()), signal.SIGKILL
    )  # it may go on, as nobody watches it now


def test_a_signal_for_the_program_passes_its_shell(train) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVES, "saves.py")
    train.program(f"{train.python} saves.py\n", "run.sh")
    process = train.start(SAVES_ON="SIGUSR1")
    train.ready(process, "ready-0")
    assert stop(train, process, signal.SIGUSR1) == 0
    assert train.left("checkpoint-0")


OWN_LAUNCHER = """
import subprocess, sys
process = subprocess.Popen([sys.executable, "saves.py"])
process.wait()
if process.returncode:
    raise subprocess.CalledProcessError(process.returncode, process.args)
"""


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
def test_what_a_dying_launcher_leaves_behind_has_its_time(train, signo: int) -> None:  # type: ignore[no-untyped-def]
    train.program(SAVES, "saves.py")
    train.program(OWN_LAUNCHER, "launcher.py")
    process = train.start(SAVES_ON=signal.Signals(signo).name)
    train.ready(process, "ready-0")
    assert stop(train, process, signo) in (143, 130)
    assert train.left("checkpoint-0")


IGNORES = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = pathlib.Path(os.environ["SM_MODEL_DIR"])
signal.signal(signal.SIGINT, lambda *_: (folder / "interrupted").touch())
if os.fork() == 0:
    os.setsid()
(folder / f"ready-{os.getpid() == os.getsid(0)}").touch()
while True:
    time.sleep(600)
"""


@pytest.mark.lane("suite")
@pytest.mark.parametrize(
    ("signals", "grace", "code"),
    [
        ((signal.SIGTERM,), "1", 143),
        ((signal.SIGINT, signal.SIGINT), "60", 130),
        ((signal.SIGTERM, signal.SIGINT), "60", 143),
    ],
)
def test_what_does_not_end_is_killed(train, signals: tuple[int, ...], grace: str, code: int) -> None:  # type: ignore[no-untyped-def]
    train.program(IGNORES)
    process = train.start(MUSTER_STOP_GRACE=grace)
    train.ready(process, "ready-True", "ready-False")
    began = time.monotonic()
    assert stop(train, process, *signals) == code
    assert time.monotonic() - began < 50


def test_a_second_interrupt_kills_what_a_launcher_left_behind(train) -> None:  # type: ignore[no-untyped-def]
    train.program(IGNORES, "saves.py")
    train.program(OWN_LAUNCHER, "launcher.py")
    process = train.start()
    train.ready(process, "ready-True", "ready-False")
    assert stop(train, process, signal.SIGINT, signal.SIGINT) == 130


LOADS = """
import os, pathlib, signal, sys, time, torch
from torch.utils.data import DataLoader, Dataset
folder, rank = pathlib.Path(os.environ["SM_MODEL_DIR"]), os.environ["RANK"]
after = []
signal.signal(signal.SIGTERM, lambda *_: after.append(0))

class Items(Dataset):
    def __len__(self):
        return 10 ** 6

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.ones(1)

for number, batch in enumerate(DataLoader(Items(), batch_size=4, num_workers=2)):
    if number == 5:
        (folder / f"ready-{rank}").touch()
    if after:
        after.append(number)
    if len(after) > 50:
        break
(folder / f"checkpoint-{rank}").touch()
"""


@pytest.mark.torch
@pytest.mark.parametrize("launcher", ["ranks", "torchrun"])
def test_data_loader_workers_outlive_the_stop_until_their_rank_ends(train, launcher: str) -> None:  # type: ignore[no-untyped-def]
    train.program(LOADS)
    process = train.start(MUSTER_LAUNCHER=launcher, MUSTER_SLOTS="2")
    train.ready(process, "ready-0", "ready-1")
    assert stop(train, process, signal.SIGTERM) == 143
    assert train.left("checkpoint-0")
    assert train.left("checkpoint-1")


@pytest.mark.torch
@pytest.mark.parametrize("seconds", [0.3, 0.9])
def test_a_stop_while_torchrun_starts(train, seconds: float) -> None:  # type: ignore[no-untyped-def]
    train.program("import time\ntime.sleep(600)\n")
    process = train.start(MUSTER_LAUNCHER="torchrun", MUSTER_SLOTS="2")
    eventually(lambda: process_tree.catches(process.pid, signal.SIGTERM))
    time.sleep(seconds)
    began = time.monotonic()
    assert stop(train, process, signal.SIGTERM) == 143
    assert time.monotonic() - began < 60


FAMILY = """
import os, pathlib, sys, time
rank = os.environ["RANK"]
draft = pathlib.Path(os.environ["SM_MODEL_DIR"], f".family-{rank}")
draft.write_text(f"{os.getpid()} {os.getppid()}")
draft.rename(draft.with_name(f"family-{rank}"))
time.sleep(600)
"""


def family(train, process: subprocess.Popen[bytes]) -> tuple[int, int, int]:  # type: ignore[no-untyped-def]
    """The pids of the first rank's program, its stub, and torchrun."""
    train.ready(process, "family-0", "family-1")
    program, stub = map(int, (train.base / "model" / "family-0").read_text().split())
    return program, stub, int(Path(f"/proc/{stub}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.lane("suite")
@pytest.mark.torch
def test_a_rank_outlives_its_stub_and_ends_with_its_own_code(train) -> None:  # type: ignore[no-untyped-def]
    """torchrun alone decides from the stub's end; what we say comes from the program."""
    waits = "while not (rank == '0' and draft.with_name('go').exists()):\n    time.sleep(0.01)\nsys.exit(5)"
    train.program(FAMILY.replace("time.sleep(600)", waits))
    process = train.start(MUSTER_LAUNCHER="torchrun", MUSTER_SLOTS="2")
    os.kill(family(train, process)[1], signal.SIGKILL)
    (train.base / "model" / "go").touch()
    process.communicate(timeout=500)
    assert process.returncode == 5
    assert "rank 0 (local rank 0) on algo-1, exit code 5" in train.reason
