"""One host under ``train``: every byte of a program's output comes out, and the code whatever the disk is like."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

WRITES = {
    "a progress bar": b"10 %\r50 %\r100 %\n",
    "no text at all": bytes(range(256)) * 40 + b"\xff\xfe\n",
    "a last line without its end": b"one\ntwo",
    "blank lines": b"\n\n\n",
    "nothing": b"",
    "a line longer than every buffer": b"x" * 3_000_000 + b"\n",
}


@pytest.mark.lane("suite")
@pytest.mark.parametrize("what", WRITES)
def test_bytes_are_exact(train, what: str) -> None:  # type: ignore[no-untyped-def]
    train.program("import os, sys\ndata = open(sys.argv[0] + '.data', 'rb').read()\n"
                  "while data:\n    data = data[os.write(1, data[:70000]):]\n")  # fmt: skip
    (train.base / "code" / "program.py.data").write_bytes(WRITES[what])
    ran = train.run()
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, WRITES[what], b"")


ALTERNATES = "import os\nfor number in range(2000):\n    os.write(1 + number % 2, b'%d\\n' % number)\n"


def test_order_where_stdout_and_stderr_are_the_same(train) -> None:  # type: ignore[no-untyped-def]
    train.program(ALTERNATES)
    process = train.start(stderr=subprocess.STDOUT)
    stdout, _ = process.communicate(timeout=500)
    assert stdout == b"".join(b"%d\n" % number for number in range(2000))


def test_stdout_and_stderr_stay_apart(train) -> None:  # type: ignore[no-untyped-def]
    train.program(ALTERNATES)
    ran = train.run()
    for start, data in enumerate((ran.stdout, ran.stderr)):
        assert data == b"".join(b"%d\n" % number for number in range(start, 2000, 2))


LINES = """
import os, sys, time
rank = os.environ["RANK"]
for number in range(400):
    line = (f"{rank} {number} " + rank * 300 + "\\n").encode()
    os.write(1, line[:150])
    os.write(1, line[150:])
if rank == "2":
    sys.exit("the words of the hidden one")
time.sleep(0 if "alone" in os.environ else 30)
"""


@pytest.mark.lane("suite")
def test_lines_of_several_ranks_stay_whole(train) -> None:  # type: ignore[no-untyped-def]
    train.program(LINES.replace('if rank == "2"', "if False"))
    ran = train.run(MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="4", alone="1")
    expected = {f"{rank} {number} {str(rank) * 300}" for rank in range(4) for number in range(400)}
    lines = ran.stdout.decode().splitlines()
    assert sorted("".join(lines)) == sorted("".join(expected))
    # a rank that isn't given the processor for 0.2 s between its two writes has its line released
    assert len(expected - set(lines)) < len(expected) / 4


FAMILY = """
import multiprocessing, os, subprocess, sys

def speak(number):
    for step in range(1000):
        print("process", number, "step", step, "loss", 0.5, file=getattr(sys, os.environ["stream"]))

if __name__ == "__main__":
    how = os.environ["how"]
    if how == "subprocess":
        words = [sys.executable, "-c", "import sys, program; program.speak(int(sys.argv[1]))"]
        children = [subprocess.Popen([*words, str(number)]) for number in range(4)]
        sys.exit(any([child.wait() for child in children]))
    context = multiprocessing.get_context(how)
    children = [context.Process(target=speak, args=(number,)) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
"""


@pytest.mark.lane("suite")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver", "subprocess"])
@pytest.mark.parametrize("given", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["", "as AWS's images"])
def test_the_processes_of_a_rank_write_whole_lines(train, how: str, stream: str, given: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    train.program(FAMILY)
    ran = train.run(how=how, stream=stream, **given)
    lines = getattr(ran, stream).decode().splitlines()
    assert ran.returncode == 0
    assert sorted(lines) == sorted(f"process {one} step {step} loss 0.5" for one in range(4) for step in range(1000))


@pytest.mark.lane("suite")
@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "ctypes.string_at(0)"])
def test_the_last_line_before_a_crash_is_there(train, end: str) -> None:  # type: ignore[no-untyped-def]
    train.program(f"import ctypes, os\nprint('the last of', os.environ['RANK'], end='!\\n')\n{end}\n")
    ran = train.run(MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="25", MUSTER_ON_FAILURE="finish")
    assert sorted(ran.stdout.decode().splitlines()) == sorted(f"the last of {rank}!" for rank in range(25))


PREFIXES = {"rank": "[rank 1] ", "host": "[algo-1:1] ", "mpi": "[1,mpirank:1,algo-1]<stdout>:"}


@pytest.mark.parametrize("form", PREFIXES)
def test_a_hidden_rank_that_fails_has_its_say(train, form: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    train.program(LINES)
    ran = train.run(MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="3", MUSTER_LOG_RANKS="1", MUSTER_LOG_PREFIX=form,
                    MUSTER_LOG_DIR=str(tmp_path / "logs"))  # fmt: skip
    assert ran.returncode == 1
    assert all(line.startswith(PREFIXES[form] + "1 ") for line in ran.stdout.decode().splitlines())
    assert b"the words of the hidden one\n" in ran.stderr
    assert "the words of the hidden one" in train.reason
    assert sorted(os.listdir(tmp_path / "logs")) == ["rank-0.log", "rank-1.log", "rank-2.log"]
    assert (tmp_path / "logs" / "rank-2.log").read_text().startswith("2 0 222")


def test_the_last_words_of_a_talkative_program(train) -> None:  # type: ignore[no-untyped-def]
    train.program(
        "import os\nfor _ in range(300):\n    os.write(1, b'x' * 99_999 + b'\\n')\nraise LookupError('last')\n"
    )
    ran = train.run()
    assert (ran.returncode, len(ran.stdout)) == (1, 30_000_000)
    assert ran.stderr.count(b"LookupError: last") == 2, "the traceback's last line, and our own"
    assert train.reason.startswith("LookupError: last\nrank 0 (local rank 0) on algo-1, exit code 1\n")


def test_a_program_that_closes_its_output(train) -> None:  # type: ignore[no-untyped-def]
    train.program("import os, sys\nos.close(1)\nos.close(2)\nos._exit(4)\n")
    assert train.run().returncode == 4
    assert train.reason == "rank 0 (local rank 0) on algo-1, exit code 4"


@pytest.mark.lane("suite")
@pytest.mark.parametrize(("given", "code"), [(256, 0), (-1, 255), (7, 7), (300, 44)])
def test_exit_codes_are_what_the_system_makes_of_them(train, given: int, code: int) -> None:  # type: ignore[no-untyped-def]
    train.program(f"import sys\nsys.exit({given})\n")
    assert train.run().returncode == code


@pytest.mark.lane("suite")
def test_finish_lets_the_others_go_on(train) -> None:  # type: ignore[no-untyped-def]
    train.program(
        "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit(5)\ntime.sleep(0.5)\nprint('done')\n"
    )
    ran = train.run(MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="3", MUSTER_ON_FAILURE="finish")
    assert ran.returncode == 5
    assert ran.stdout == b"done\ndone\n"
    assert "rank 1 (local rank 1) on algo-1, exit code 5" in train.reason


def test_many_short_ranks(train) -> None:  # type: ignore[no-untyped-def]
    train.program("#!/bin/sh\necho $RANK\n", "short.sh")
    ran = train.run(MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="64")
    assert ran.returncode == 0
    assert sorted(map(int, ran.stdout.split())) == list(range(64))


def test_a_launcher_and_then_a_failure_of_the_script_itself(train) -> None:  # type: ignore[no-untyped-def]
    """The ranks of a launcher that is a rank itself have its number; their words are not its own."""
    train.program("print('fine')\n", "inner.py")
    command = f"{train.python} -m musterpoint launch --launcher ranks inner.py"
    train.program(f"{command} || exit\n{train.python} -c 'raise LookupError(\"afterwards\")'\n", "run.sh")
    assert train.run().returncode == 1
    assert train.reason.startswith("LookupError: afterwards\n")


@pytest.mark.parametrize("cut", ["stdout", "stderr", "both"])
def test_output_that_a_limit_of_files_cuts_is_a_warning(train, tmp_path: Path, cut: str) -> None:  # type: ignore[no-untyped-def]
    """Once, in the log that is left and in outcome.json; the code is the program's."""
    stream = "stderr" if cut == "stderr" else "stdout"
    train.program(f"import sys\nfor number in range(9000):\n    print(number, file=sys.{stream})\nsys.exit(5)\n")
    with open(tmp_path / "log", "wb") as log:
        to = {"stdout": {"stdout": log}, "stderr": {"stderr": log}, "both": {"stdout": log, "stderr": log}}[cut]
        process = train.start("sh", "-c", 'ulimit -f 32 && exec "$@"', "sh", **to)
        said, complained = process.communicate(timeout=500)
    assert process.returncode == 5
    warning = f"{stream}: File too large; output is missing there"
    assert json.loads((train.base / "output/outcome.json").read_text())["warnings"] == [warning]
    left = (said if cut == "stderr" else complained) or b""
    assert left.decode().count(f"musterpoint: warning: {warning}\n") == (cut != "both")


def full(folder: Path) -> None:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    with open(folder / "fill", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass


def read_only(folder: Path) -> None:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], check=True)


def a_file(folder: Path) -> None:
    folder.write_text("in the way")


def missing(folder: Path) -> None:
    pass


@pytest.mark.netns
@pytest.mark.parametrize(
    ("make", "says"),
    [(full, "No space left on device"), (read_only, "Read-only"), (a_file, "Not a directory"), (missing, "")],
)
def test_what_cannot_be_written_changes_no_code(train, make, says: str) -> None:  # type: ignore[no-untyped-def]
    if make in (full, read_only) and (os.geteuid() != 0 or not shutil.which("mount")):
        pytest.skip("mounting takes root")
    train.program("import sys\nsys.exit(5)\n")
    output = train.base / "output"
    make(output)
    try:
        ran = train.run()
    finally:
        if os.path.ismount(output):
            subprocess.run(["umount", str(output)], check=True)
    assert ran.returncode == 5
    assert (f"failure could not be written: {says}" in ran.stderr.decode()) == bool(says)
    assert (train.base / "output" / "failure").exists() == (make is missing)
