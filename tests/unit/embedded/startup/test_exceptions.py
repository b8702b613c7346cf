"""Ranks that tell the supervisor of the exception that ends them, and print what they always print."""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.base.failure import Failure
from musterpoint.core.diagnosis.raised_facts import RaisedFacts
from musterpoint.core.diagnosis.traceback import lines_of, parse
from musterpoint.core.launch.inputs import STARTUP, TASKS
from musterpoint.embedded.startup import exceptions

PROGRAM = """
import atexit, os, sys
atexit.register(lambda: print("exit function", file=sys.stderr))
def load():
    try:
        {{}}["shard 17"]
    except KeyError as error:
        raise LookupError("no such shard: 17\\nthere are 16 of them") from error
{0}
load()
"""


class Supervisor(socketserver.ThreadingUnixStreamServer):
    """Takes lines at a control socket of its own, and answers."""

    def __init__(self, path: str) -> None:
        self.path, self.lines = path, list[str]()
        super().__init__(path, Heard)


class Heard(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.server.lines += [self.rfile.readline().decode() for _ in range(2)]  # type: ignore[attr-defined]
        self.wfile.write(b"heard\n")


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(str(tmp_path / "control")) as supervisor:
        threading.Thread(target=supervisor.serve_forever, args=(0.01,)).start()
        yield supervisor
        supervisor.shutdown()


def run(environ: dict[str, str], before: str = "", **more: str) -> tuple[int, str, int]:
    """Exit code, output and pid of the program."""
    environ = environ | {"PYTHONPATH": STARTUP, TASKS: "exceptions"} | more
    words = [sys.executable, "-c", PROGRAM.format(before)]
    process = subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True)
    said = process.communicate()[1]
    return process.returncode, said, process.pid


def variables(supervisor: Supervisor) -> dict[str, str]:
    return {"MUSTER_OUTER": supervisor.path, "MUSTER_SOCKET_TOKEN": "of the job"}


def test_the_exception_is_told_with_its_causes_and_printed_as_ever(
    environ: dict[str, str], supervisor: Supervisor
) -> None:
    plain = run(environ)
    code, said, pid = run(environ, **variables(supervisor))
    assert (code, said) == plain[:2] == (1, said)
    token, line = supervisor.lines
    assert token == "of the job\n"
    facts = RaisedFacts.from_line(line)
    assert facts.pid == pid
    assert [one.text for one in facts.chain] == [
        "KeyError: 'shard 17'",
        "LookupError: no such shard: 17\nthere are 16 of them",
    ]
    assert [one.chained for one in facts.chain] == [False, True]
    assert [(frame.file, frame.function) for frame in facts.chain[-1].frames] == [
        ("<string>", "<module>"),
        ("<string>", "load"),
    ]


@pytest.mark.parametrize(
    "line",
    ["def f(:", " x", "exec('a b')", "json", "sys.exut", "raise SyntaxError",
     "raise SyntaxError('x', ('f', 1, 1, 'y'))", "class Own(SyntaxError): pass\nraise Own('x')",
     "raise KeyError('x')", "raise OSError(2, 'gone', 'f')"],
)  # fmt: skip
def test_the_words_told_and_printed_are_the_same_failure(
    environ: dict[str, str], supervisor: Supervisor, tmp_path: Path, line: str
) -> None:
    """Of ranks that fail alike one may have printed all by the time, and another one only told."""
    (program := tmp_path / "program.py").write_text(f"import sys\n{line}\n")
    environ = environ | {"PYTHONPATH": STARTUP, TASKS: "exceptions"} | variables(supervisor)
    ended = subprocess.run([sys.executable, str(program)], env=environ, stderr=subprocess.PIPE, text=True)
    printed = list(parse(lines_of(ended.stderr.encode())))[-1]
    told = RaisedFacts.from_line(supervisor.lines[1]).chain[-1]
    assert [frame[:3] for frame in told.frames] == [frame[:3] for frame in printed.frames]
    one, other = (Failure("a", 1, "user", "user", each.text, rank) for rank, each in enumerate((printed, told)))
    assert one.says_what(other)


CALLBACK = """
import ctypes
ctypes.pythonapi.PyRun_SimpleString(b"raise ValueError('in C')")
load = lambda: None
"""


def test_a_hook_of_the_programs_own_hides_nothing(environ: dict[str, str], supervisor: Supervisor) -> None:
    own = "sys.excepthook = lambda *_: print('theirs', file=sys.stderr)"
    assert run(environ, own, **variables(supervisor))[:2] == run(environ, own)[:2]
    assert RaisedFacts.from_line(supervisor.lines[1]).chain[-1].text.startswith("LookupError: no such shard")


@pytest.mark.parametrize(
    "before",
    [
        "if os.fork() == 0: load()\nos.wait()\nos._exit(1)",
        "sys.exit('giving up')",
        CALLBACK,
        "os.environ['PYTHONINSPECT'] = '1'",
        "import threading\nthreading.Thread(target=load).start()\nload = lambda: None",
    ],
    ids=["a forked process", "no exception", "a callback", "a person", "another thread"],
)
def test_nothing_is_told_of_what_does_not_end_the_rank(
    environ: dict[str, str], supervisor: Supervisor, before: str
) -> None:
    assert run(environ, before, **variables(supervisor))[:2] == run(environ, before)[:2]
    assert supervisor.lines == []


@pytest.mark.parametrize("address", ["@no such socket", "/no/such/file"])
def test_a_supervisor_that_is_gone_changes_nothing(environ: dict[str, str], address: str) -> None:
    told = run(environ, MUSTER_OUTER=address, MUSTER_SOCKET_TOKEN="x")
    assert told[:2] == run(environ)[:2]


class Odd(Exception):
    def __str__(self) -> str:
        raise TypeError("no")


def test_what_is_told_has_bounds() -> None:
    def again(depth: int) -> None:
        if depth:
            again(depth - 1)
        raise ValueError("x" * 1_000_000)

    error: BaseException = Odd()
    try:
        again(500)
    except ValueError as found:
        (one,) = exceptions.chain_of(found)
        assert len(str(one["text"])) == exceptions.MOST_TEXT
        assert len(one["frames"]) == exceptions.MOST_FRAMES + 1  # type: ignore[arg-type]
    assert exceptions.chain_of(error)[0]["text"] == f"{Odd.__module__}.Odd: <exception str() failed>"
    first = error
    for _ in range(100):
        error.__context__ = ValueError()
        error = error.__context__
    error.__context__ = first
    assert len(exceptions.chain_of(first)) == exceptions.MOST_CAUSES


def test_an_interrupted_rank_still_ends_by_the_signal(environ: dict[str, str], supervisor: Supervisor) -> None:
    """A shell, mpirun and the exit code 130 depend on it."""
    plain = run(environ, "os.kill(os.getpid(), 2)")
    code, said, _pid = run(environ, "os.kill(os.getpid(), 2)", **variables(supervisor))
    assert (code, said) == plain[:2]
    assert code == -2
    assert RaisedFacts.from_line(supervisor.lines[1]).chain[-1].text == "KeyboardInterrupt"


@pytest.mark.parametrize("value", [{"a": [1, '\udcff\0"\\\n', {"b": []}]}, {}, [], "é", 2**70])
def test_json(value: object) -> None:
    assert json.loads(exceptions.text_of_json(value)) == value
