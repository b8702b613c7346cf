"""Programs that raise, each really run: the reason leads with their exception, whatever they print on their way out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.failure import MOST_REASON
from musterpoint.core.code.program_files import CodeDirectory
from musterpoint.core.diagnosis.evidence import DiagnosisContext, Evidence
from musterpoint.core.diagnosis.program_failures import failure_of_rank
from musterpoint.core.processes.tail import Tail

# what fails -> (statements of a function, how the reason begins)
SHAPES = {
    "plain": ('raise ValueError("bad label")', "ValueError: bad label"),
    "no message": ("raise ValueError", "ValueError"),
    "empty message": ('raise ValueError("")', "ValueError"),
    "46 lines": ('raise RuntimeError("size mismatch:" + "\\n\\tcopying a param" * 46)', "RuntimeError: size mismatch:"),
    "46 bare lines": (
        'raise RuntimeError("\\n".join(f"row {n} is bad" for n in range(46)))',
        "RuntimeError: row 0 is bad",
    ),
    "64 KiB": ('raise RuntimeError("keys:" + "\\n  missing key" * 9000)', "RuntimeError: keys:"),
    "5 MB": ('raise RuntimeError("batch " + "0.123 " * 900_000)', "RuntimeError: batch 0.123"),
    "5 MB of lines": ('raise RuntimeError("first\\n" + "0.123\\n" * 900_000)', "RuntimeError: first"),
    "cause": ('try:\n    {}["lr"]\nexcept KeyError as e:\n    raise ValueError("no lr") from e', "ValueError: no lr"),
    "long cause": (
        'try:\n    raise KeyError("k" * 100_000)\nexcept KeyError as e:\n    raise ValueError("no lr") from e',
        "ValueError: no lr",
    ),
    "context": ('try:\n    {}["lr"]\nexcept KeyError:\n    open("/nowhere")', "FileNotFoundError: [Errno 2]"),
    "own class": ("class Stall(Exception):\n    pass\nraise Stall('no data')", "fail.<locals>.Stall: no data"),
    "a class in a class": (
        "def inner():\n    class Überlauf(Exception): pass\n    raise Überlauf('x')\ninner()",
        "fail.<locals>.inner.<locals>.Überlauf: x",
    ),
    "no str": (
        "class Odd(Exception):\n    def __str__(self): raise TypeError('no')\nraise Odd",
        "fail.<locals>.Odd: <exception str() failed>",
    ),
    "nul and escapes": ('raise ValueError("a\\0b\\x1b[31mred \\udcff")', "ValueError: a"),
    "carriage return": ('raise ValueError("loading\\rdone")', "ValueError: loading"),
    "recursion": ("def again(): again()\nagain()", "RecursionError: maximum recursion depth exceeded"),
    "two recurse": ("def one(): two()\ndef two(): one()\none()", "RecursionError: maximum recursion depth exceeded"),
    "interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "syntax": ('compile("a = = 1", "config.py", "exec")', "SyntaxError: invalid syntax"),
    "a traceback inside": (
        'raise RuntimeError("worker 3 says\\nTraceback (most recent call last):\\n  it was long\\n" + "x\\n" * 99)',
        "RuntimeError: worker 3 says",
    ),
    "an old one before": (
        "import logging\nlogging.exception('x', exc_info=OSError('old'))\nraise ValueError('new')",
        "ValueError: new",
    ),
    "state dict": (
        'errors = [f"Missing key(s): layer.{n}.weight" for n in range(300)]\n'
        'raise RuntimeError("Error(s) in loading state_dict for Net:\\n\\t" + "\\n\\t".join(errors))',
        "RuntimeError: Error(s) in loading state_dict for Net:",
    ),
}
if sys.version_info >= (3, 11):
    SHAPES |= {
        "notes": (
            'e = ValueError("bad batch")\nfor n in range(60): e.add_note(f"sample {n}")\nraise e',
            "ValueError: bad batch",
        ),
        "group": (
            'raise ExceptionGroup("loading", [ValueError("shard 3"), KeyError("x"), OSError("y")])',
            "ExceptionGroup: loading (3 sub-exceptions)\nValueError: shard 3 (and 2 others)",
        ),
        "one in a group": (
            'raise ExceptionGroup("loading", [ValueError("shard 3")])',
            "ExceptionGroup: loading (1 sub-exception)\nValueError: shard 3\nrank 5",
        ),
        "group of groups": (
            'raise ExceptionGroup("a", [ExceptionGroup("b", [TypeError("t"), KeyError("k")]), OSError("y")])',
            "ExceptionGroup: a (2 sub-exceptions)\nTypeError: t (and 2 others)",
        ),
        "a wide group": (
            'raise ExceptionGroup("a", [ValueError(str(n)) for n in range(40)])',
            "ExceptionGroup: a (40 sub-exceptions)\nValueError: 0 (and 39 others)",
        ),
        "a group's long text": (
            'raise ExceptionGroup("a", [ValueError("shards\\n" + "bad\\n" * 30_000), KeyError("k")])',
            "ExceptionGroup: a (2 sub-exceptions)\nValueError: shards",
        ),
        "from a group": (
            'try:\n    raise ExceptionGroup("a", [ValueError("v")])\nexcept Exception as e:\n'
            '    raise RuntimeError("all failed") from e',
            "RuntimeError: all failed",
        ),
        "tasks": (
            'import asyncio\nasync def one(): raise ValueError("v")\nasync def all_of():\n'
            "    async with asyncio.TaskGroup() as group: group.create_task(one())\nasyncio.run(all_of())",
            "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\nValueError: v",
        ),
    }
NOISE = {
    0: "",
    60: "wandb run {n} synced",
    45: "Error in cleanup of thread {n}: resource busy",
    2500: "releasing buffer {n} of the shared memory pool of this process",
}
# how the program calls what fails
WAYS = {
    "flat": "fail()",
    "main": "def main():\n    fail()\nif __name__ == '__main__':\n    main()",
    "guarded": "try:\n    fail()\nexcept SystemExit:\n    print('done')",
    "finally": "try:\n    fail()\nfinally:\n    print('closing')",
    "raised again": "try:\n    fail()\nexcept BaseException as error:\n    print('failed')\n    raise",
    "ends itself": (
        "import traceback\ntry:\n    fail()\nexcept BaseException as error:\n    traceback.print_exc()\n    sys.exit(1)"
    ),
}


def ran(folder: Path, program: str, **variables: str) -> Evidence:
    """How a program really ended, with what a tail kept of its output."""
    path = folder / "train.py"
    path.write_text(program, "utf-8")
    done = subprocess.run(
        [sys.executable, path], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=500,
        env=os.environ | variables,
    )  # fmt: skip
    tail = Tail()
    for at in range(0, len(done.stdout), 256 << 10):
        tail.feed(memoryview(done.stdout[at : at + (256 << 10)]))
    return Evidence(5, 1, done.returncode, 0.0, tail=tail.text())


def below(code: Path | str) -> DiagnosisContext:
    """A host whose program is in the directory ``code``."""
    return DiagnosisContext("algo-3", files=CodeDirectory(str(code)))


def program(body: str, way: str, lines: int) -> str:
    noise = f"import atexit\natexit.register(lambda: [print(f{NOISE[lines]!r}) for n in range({lines})])\n"
    indented = "\n".join("    " + line for line in body.split("\n"))
    return f"import sys\n{noise}for n in range(99): print('step', n)\ndef fail():\n{indented}\n{WAYS[way]}\n"


CASES = [
    (name, list(WAYS)[(index + turn) % len(WAYS)], lines)
    for index, name in enumerate(SHAPES)
    for turn, lines in enumerate(NOISE)
    if (name, lines) != ("two recurse", 2500)  # a thousand frames, and as much again behind them
]


@pytest.mark.parametrize(("name", "way", "lines"), CASES)
def test_the_exception_leads_the_reason(tmp_path: Path, name: str, way: str, lines: int) -> None:
    body, lead = SHAPES[name]
    failure = failure_of_rank(ran(tmp_path, program(body, way, lines)), below(tmp_path))
    assert failure.reason.removeprefix("__main__.").startswith(lead)  # as Python 3.10 prints it
    assert len(failure.reason.encode()) <= MOST_REASON
    assert not re.search("[\0-\x08\x0b-\x1f]", failure.reason)
    assert "rank 5 (local rank 1) on algo-3, " in failure.reason
    assert 'File "train.py", line ' in failure.reason
    assert "in fail" in failure.reason or ".py" in failure.reason.split("\n", 2)[2]


def test_colours_change_nothing(tmp_path: Path) -> None:
    """Python 3.13 colours tracebacks where it is asked to."""
    end = ran(tmp_path, program("raise ValueError('bad \x1b[1mlabel')", "main", 0), FORCE_COLOR="1")
    failure = failure_of_rank(end, below(tmp_path))
    assert failure.reason.split("\n")[0] == "ValueError: bad label"
    assert 'File "train.py", line 6, in fail' in failure.reason


SAID = {
    "the user's words": ("sys.exit('no data in /opt/ml/input')", "no data in /opt/ml/input\nrank 5"),
    "after steps": ("[print('step', n) for n in range(50)]; sys.exit('stopped at 50')", "stopped at 50\nrank 5"),
    "after losses": (
        "[print('loss', n, 'error: 0.5') for n in range(50)]; sys.exit('set --data-dir')", "set --data-dir\nrank 5"),
    "after a warning of its own": (
        "print('ERROR: no cache, going on'); print('hello'); sys.exit('no GPU here')",
        "no GPU here\nERROR: no cache, going on\nrank 5"),
    "several lines": (
        "print('loading'); sys.exit('wrong usage, give\\n  --a\\n  or --b')", "wrong usage, give\n--a\nor --b\nrank 5"),
    "a list": ("print('loading'); sys.exit('set all of:\\nA\\nB')", "set all of:\nA\nB\nrank 5"),
    "a tool's advice": (
        "print('ERROR: no matching version'); print('[notice] To update, run: pip'); sys.exit(1)",
        "ERROR: no matching version\nrank 5"),
    "a log's last line": (
        "print('error: no data'); print('2026-11-22 03:30:00,1 INFO bye'); sys.exit(1)", "error: no data\nrank 5"),
    "just a number": ("[print('step', n) for n in range(50)]; sys.exit(1)", "rank 5"),
    "another code": ("print('no data', file=sys.stderr); sys.exit(4)", "rank 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_sys_exit_was_given_leads(tmp_path: Path, name: str) -> None:
    body, lead = SAID[name]
    assert failure_of_rank(ran(tmp_path, f"import sys\n{body}\n"), below("")).reason.startswith(lead)


def test_an_error_that_was_printed_leads_where_nothing_was_given_to_sys_exit(tmp_path: Path) -> None:
    program = "import sys\nif len(sys.argv) > 9: sys.exit('too many arguments')\nprint('error: no data')\nsys.exit(1)\n"
    reason = failure_of_rank(ran(tmp_path, program), below(tmp_path)).reason
    assert reason.startswith("error: no data\nrank 5")


def test_a_log_is_no_part_of_the_message_before_it(tmp_path: Path) -> None:
    program = (
        "import logging, sys\nlogging.basicConfig(level=logging.INFO)\ntry:\n    raise ConnectionError('mirror down')\n"
        "except ConnectionError:\n    logging.exception('next mirror')\n    logging.info('step 1')\nsys.exit(7)\n"
    )
    reason = failure_of_rank(ran(tmp_path, program), below(tmp_path)).reason
    assert reason.split("\n")[:2] == ["ConnectionError: mirror down", "rank 5 (local rank 1) on algo-3, exit code 7"]


WORKER = """
import subprocess, sys, textwrap, traceback
def inner():
    raise ValueError("bad label")
def work():
    try:
        inner()
    except ValueError:
        return traceback.format_exc()
"""
QUOTED = {
    "as it is": 'raise RuntimeError("task 3 failed\\n" + work())',
    "indented": 'raise RuntimeError("task 3 failed\\n" + textwrap.indent(work(), "    "))',
    "in the middle": 'raise RuntimeError("task 3 failed\\n" + work() + "\\nwhile shard 3 was read")',
    "two": 'raise RuntimeError("task 3 failed\\n" + work() + work())',
    "behind a colon": 'raise RuntimeError("task 3 failed:\\n" + work())',
    "while it is handled": (
        "def main():\n    try:\n        inner()\n    except ValueError:\n"
        '        raise RuntimeError("task 3 failed\\n" + traceback.format_exc())\nmain()'
    ),
    "of another program": (
        "program = \"raise ValueError('bad label')\"\n"
        "ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)\n"
        'raise RuntimeError("task 3 failed\\n" + ran.stderr)'
    ),
}
NOT_QUOTED = {
    "printed in a function": 'print(work(), file=sys.stderr)\nraise RuntimeError("task 3 failed")',
    "printed by the main program": (
        'try:\n    inner()\nexcept ValueError:\n    traceback.print_exc()\nraise RuntimeError("task 3 failed")'
    ),
    "printed at exit": (
        'import atexit\natexit.register(lambda: print(work(), file=sys.stderr))\nraise RuntimeError("task 3 failed")'
    ),
}


@pytest.mark.parametrize("name", [*QUOTED, *NOT_QUOTED])
def test_what_ended_the_program_leads_whatever_it_quotes(tmp_path: Path, name: str) -> None:
    end = ran(tmp_path, WORKER + (QUOTED.get(name) or NOT_QUOTED[name]) + "\n")
    first, second, *_ = failure_of_rank(end, below(tmp_path)).reason.split("\n")
    assert re.fullmatch("RuntimeError: task 3 failed:?", first)
    assert second == "ValueError: bad label" if name in QUOTED else second != "ValueError: bad label" or "exit" in name
