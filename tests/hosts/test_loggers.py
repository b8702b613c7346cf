"""What scripts and programs send through loggers of their own, and what they leave running when they end."""

from __future__ import annotations

import json
import signal

import pytest

LINES = 60
PRINTS = f"""
import sys
for i in range({LINES}):
    print("step", i)
print("test:accuracy=0.98")
if sys.argv[1:] == ["fails"]:
    raise ValueError("bad shard 7")
"""
LOOP = 'while IFS= read -r l; do echo "$(date +%T) $l"; done'
LOGGERS = {
    "tee": 'exec > >(tee -a "$SM_MODEL_DIR/log") 2>&1\n{run}',
    "a loop that starts a program for each line": f"exec > >({LOOP}) 2>&1\n{{run}}",
    "a loop of the last program": f"{{run}} > >({LOOP}) 2>&1",
    "awk, which writes at its end": "{run} > >(awk '{{print \"logged\", $0}}') 2>&1",
    "two levels": f'exec > >(tee -a "$SM_MODEL_DIR/log" > >({LOOP})) 2>&1\n{{run}}',
    "a slow loop": "exec > >(while IFS= read -r l; do sleep 0.02; echo \"$l\"; done) 2>&1\n{run}",
    "a pipe, and the program's code": "set -o pipefail\n{run} 2>&1 | tee -a \"$SM_MODEL_DIR/log\"",
    "a logger of the errors": "exec 2> >(tee /dev/null >&2)\n{run}",
}  # fmt: skip


def script(how: str, run: str) -> str:
    return "#!/bin/bash\n" + LOGGERS[how].format(run=run) + "\n"


def lines_of(output: str) -> tuple[int, int]:
    """How many of the program's lines there are, and how often the metric."""
    return sum("step " in line for line in output.splitlines()), output.count("test:accuracy=0.98")


@pytest.mark.lane("suite")
@pytest.mark.parametrize("how", LOGGERS)
def test_every_line_comes_through_the_scripts_logger_and_the_reason_with_it(train, how: str) -> None:  # type: ignore[no-untyped-def]
    train.program(PRINTS, "prints.py")
    train.program(script(how, f"{train.python} prints.py fails"), "run.sh")
    done = train.run()
    output = (done.stdout + done.stderr).decode()
    assert (done.returncode, lines_of(output)) == (1, (LINES, 1)), output
    assert "ValueError: bad shard 7" in train.reason.partition("\n")[0]


LONG_ENOUGH = "import time; time.sleep(0.3)"  # a Python of some milliseconds may end before it was seen
KILLED = f"{LONG_ENOUGH}; import os; os.kill(os.getpid(), 9)"
RAISED = """'Traceback (most recent call last):' '  File "a.py", line 1, in <module>' 'ValueError: bad'"""
HIDES = {
    f"(printf '%s\\n' {RAISED} >&2; exit 3); true": "ValueError: bad: ",  # of a program that is no Python
    "{run} 2>&1 | tee log": "ValueError: bad shard 7 (exit code 1): ",
    "export PYTHONPATH=.; {run} & wait": "ValueError: bad shard 7 (exit code 1): ",
    "{python} -c '{killed}' 2>&1 | tee log": "SIGKILL: ",  # told by Linux 6.15 and later
    "{run}; rc=$?; {python} prints.py --rc $rc": "",
    "if {run}; then echo yes; fi; echo no": "",
    "{python} -c 'import time; time.sleep(600)' & echo started": "what it had left running: ",
    "{python} -c 'import time; time.sleep(600)' & {python} prints.py": "",
}


@pytest.mark.lane("suite")
@pytest.mark.parametrize("script", HIDES)
def test_what_a_script_hides_is_told(train, script: str) -> None:  # type: ignore[no-untyped-def]
    train.program(LONG_ENOUGH + PRINTS, "prints.py")
    text = script.format(run=f"{train.python} prints.py fails", python=train.python, killed=KILLED)
    train.program(f"#!/bin/bash\n{text}\n", "run.sh")
    done = train.run()
    warned = json.loads((train.base / "output" / "outcome.json").read_text()).get("warnings", [])
    assert (done.returncode, len(warned)) == (0, bool(HIDES[script])), done.stderr
    assert all(HIDES[script] in text and "wait PID" in text for text in warned)


def test_every_rank_has_its_logger(local) -> None:  # type: ignore[no-untyped-def]
    local.program(PRINTS, "prints.py")
    program = local.program(script("a slow loop", f"{local.python} prints.py"), "run.sh")
    ran = local.run("--hosts", "2", "--slots", "2", "--launcher", "ranks", program)
    assert ran.code == 0
    for host in ("algo-1", "algo-2"):
        assert lines_of(ran.log(host)) == (2 * LINES, 2)


TOLD = """
import os, pathlib, signal, sys, time
def save(signo, frame):
    for i in range(60):
        print("step", i)
    print("test:accuracy=0.98", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
(pathlib.Path(os.environ["SM_MODEL_DIR"]) / "ready").touch()
time.sleep(600)
"""


def test_lines_of_a_stop_come_within_its_grace(train) -> None:  # type: ignore[no-untyped-def]
    train.program(TOLD, "told.py")
    train.program(script("a slow loop", f"{train.python} told.py"), "run.sh")
    process = train.start()
    train.ready(process, "ready")
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=500)
    assert (process.returncode, lines_of(output.decode())) == (143, (LINES, 1)), errors


def test_lines_of_an_attempt_come_before_the_next(train) -> None:  # type: ignore[no-untyped-def]
    train.program(PRINTS, "prints.py")
    train.program(script("a slow loop", f"{train.python} prints.py fails"), "run.sh")
    done = train.run(MUSTER_MAX_RESTARTS="1", MUSTER_RESTART_ON="user")
    assert lines_of(done.stdout.decode()) == (2 * LINES, 2), done.stderr


LEAVES = """
import os, subprocess, sys, time
folder = os.environ["SM_MODEL_DIR"]
subprocess.Popen([sys.executable, "-c", sys.argv[1], folder], start_new_session=True)
while not os.path.exists(folder + "/up"):
    time.sleep(0.01)
print("trained")
"""
UP = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])

def end(*_):
    os.write(1, b"flushed\\n")
    (folder / "flushed").touch()
    os._exit(0)

signal.signal(signal.SIGTERM, end)
"""
DOWN = """
(folder / "up").touch()
time.sleep(600)
"""
QUIET = "null = os.open(os.devnull, os.O_RDWR)\nos.dup2(null, 1)\nos.dup2(null, 2)\n"
DAEMON = "for _ in range(2):\n    if os.fork():\n        os._exit(0)\n    os.setsid()\n"
IGNORES = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n(folder / 'flushed').touch()\n"
ABOVE = "import subprocess, sys\nsubprocess.call([sys.executable, '-c', {below!r}, sys.argv[1]])\n"
SHELL = """
import os, sys
os.environ["BELOW"] = {below!r}
trap = 'trap "exit 1" TERM; "$0" -c "$BELOW" "$1" & wait'
os.execv("/bin/bash", ["bash", "-c", trap, sys.executable, sys.argv[1]])
"""
LEFT = {
    "flushes": UP + DOWN,
    "is quiet": UP + QUIET + DOWN,
    "is a daemon": UP + DAEMON + DOWN,
    "ignores it": UP + IGNORES + DOWN,
    "is below one that dies of it": ABOVE.format(below=UP + QUIET + DOWN),
    "is below a shell that traps": SHELL.format(below=UP + QUIET + DOWN),
}


@pytest.mark.lane("suite")
@pytest.mark.parametrize("how", LEFT)
def test_what_a_program_leaves_running_is_named_and_may_end_by_itself(train, how: str) -> None:  # type: ignore[no-untyped-def]
    train.program(LEAVES.replace("sys.argv[1]", repr(LEFT[how])))
    done = train.run(MUSTER_LAUNCHER="ranks")
    assert done.returncode == 0
    assert train.left("flushed")
    assert b"musterpoint: ending what the program left running: " in done.stderr
    assert (b"flushed" in done.stdout) == (how in ("flushes", "is a daemon"))


def test_what_ends_with_the_program_is_not_named(train) -> None:  # type: ignore[no-untyped-def]
    train.program(
        "import multiprocessing as m\nif __name__ == '__main__':\n    m.get_context('spawn').Pool(2).map(abs, [1, 2])\n"
    )
    done = train.run(MUSTER_LAUNCHER="ranks")
    assert (done.returncode, b"left running" in done.stderr) == (0, False)
