"""Python's own output in a rank: whole lines, with PYTHONUNBUFFERED set, and else what it is without."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Mapping

import pytest

from musterpoint.core.launch.inputs import STARTUP

UNBUFFERED = {"PYTHONPATH": STARTUP, "PYTHONUNBUFFERED": "1"}
STATE = "import sys; sys.stdout.write(f'{sys.stdout.line_buffering} {sys.stdout.write_through}')"


def run(environ: dict[str, str], program: str, *words: str, **more: str) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of the program."""
    done = subprocess.run(
        [sys.executable, *words, "-c", program], env=environ | more, stdin=subprocess.DEVNULL, capture_output=True,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


PLAIN = {
    "text without its line's end": "print('a', 1, end='')",
    "that and an exit code": "print('a', end='')\nraise SystemExit(3)",
    "that and an exception": "import sys\nprint('a', end='')\nsys.stderr.write('half a ')\n1 / 0",
    "binary after a line": "import sys\nfor i in range(100):\n    print('text', i, flush=True)\n"
    "    sys.stdout.buffer.write(b'%d\\n' % i)\n    sys.stdout.buffer.flush()",
    "binary after half a line": "import sys\nprint('half', end='')\nsys.stdout.buffer.write(b'binary\\n')\n"
    "sys.stdout.buffer.flush()\nprint('more')",
    "line ends of other systems": "for i in range(100):\n    print('a', i, end='\\r\\n')",
    "a progress bar": "for i in range(100):\n    print('\\r', i, '%', end='')\nprint()",
    "lists of lines": "import sys\nsys.stdout.writelines(['a', 'b\\n', 'c\\n', 'd'])",
    "a line longer than every buffer": "print('x' * 3_000_000, 'y' * 70_000)",
    "another encoding": "import sys\nsys.stdout.reconfigure(encoding='utf-16', errors='replace')\nprint('é', 1)",
    "bytes that are no text": "import sys\nsys.stdout.reconfigure(errors='surrogateescape')\nprint('\\udcff')",
    "a stdout of its own": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('a', 1)",
    "another one": "import os, sys\nsys.stdout = os.fdopen(1, 'w', 1)\nprint('a', 1)",
    "a stdout taken apart": "import sys\nraw = sys.stdout.detach()\nraw.write(b'raw\\n')\nraw.flush()",
    "a stdout that is closed": "import sys\nsys.stdout.close()\nprint('a', file=sys.stderr)",
    "stdout turned to stderr": "import os\nprint('a', flush=True)\nos.dup2(2, 1)\nprint('b', flush=True)",
    "a question": "try:\n    input('name? ')\nexcept EOFError:\n    print('none')",
    "a warning": "import warnings\nwarnings.warn('careful')",
    "a group of exceptions": "import traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()",
    "programs of others": "import os\nfor i in range(9):\n    print('a', i, flush=True)\n    os.system(f'echo {i}')",
}


@pytest.mark.parametrize("what", PLAIN)
def test_bytes_are_those_of_python_by_itself(environ: dict[str, str], what: str) -> None:
    environ.pop("PYTHONUNBUFFERED", None)
    assert run(environ, PLAIN[what], **UNBUFFERED) == run(environ, PLAIN[what])


SPEAKS_THEN_WAITS = {
    "a line": ("print('a', 1)", b"a 1\n"),
    "half a line that is flushed": ("print('a', 1, end='', flush=True)", b"a 1"),
    "a question": ("input('name? ')", b"name? "),
    "a carriage return": ("print('\\r10 %', end='')", b"\r10 %"),
    "binary": ("sys.stdout.buffer.write(b'a')", b"a"),
    "an error": ("print('a', 1, file=sys.stderr)", b"a 1\n"),
    "a logger": ("import logging; logging.warning('a')", b"WARNING:root:a\n"),
}


@pytest.mark.parametrize("what", SPEAKS_THEN_WAITS)
def test_what_goes_out_at_once(environ: dict[str, str], what: str) -> None:
    statement, expected = SPEAKS_THEN_WAITS[what]
    words = [sys.executable, "-c", f"import sys\n{statement}\nsys.stdin.read()\n"]
    with subprocess.Popen(
        words, env=environ | UNBUFFERED, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        seen = b""
        while len(seen) < len(expected):
            seen += os.read(process.stdout.fileno(), 100)
        process.communicate()
    assert seen == expected


@pytest.mark.skipif(sys.platform != "linux", reason="a socket that keeps writes apart")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("words", [[], ["-u"]], ids=["by the variable", "by -u"])
def test_a_line_is_one_write(environ: dict[str, str], words: list[str], stream: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = f"import sys\nfor step in range(2):\n    print('step', step, 'loss', 0.5, file=sys.{stream})\n"
    with ours, theirs:
        command = [sys.executable, *words, "-c", program]
        subprocess.run(command, env=environ | UNBUFFERED, stdout=theirs, stderr=theirs, check=True)
        assert [ours.recv(1000) for _ in range(2)] == [b"step 0 loss 0.5\n", b"step 1 loss 0.5\n"]


STATES: Mapping[str, tuple[dict[str, str], list[str], bytes]] = {
    "unbuffered": ({}, [], b"True False"),
    "by -u": ({"PYTHONUNBUFFERED": ""}, ["-u"], b"True False"),
    "buffered, as the user says": ({"PYTHONUNBUFFERED": ""}, [], b"False False"),
    "alone": ({}, ["-I"], b"False False"),
    "without what runs at a start": ({}, ["-S"], b"False True"),
}


@pytest.mark.parametrize("what", STATES)
def test_whose_output_is_changed(environ: dict[str, str], what: str) -> None:
    more, words, expected = STATES[what]
    assert run(environ, STATE, *words, **UNBUFFERED | more) == (0, expected, b"")


def test_a_sitecustomize_of_the_users_has_the_last_word(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.stdout.reconfigure(write_through=True)\n")
    path = os.pathsep.join((STARTUP, str(tmp_path)))
    assert run(environ, STATE, **UNBUFFERED | {"PYTHONPATH": path}) == (0, b"True True", b"")


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_closed_streams_are_no_error(environ: dict[str, str], tmp_path: Path, closed: tuple[int, ...]) -> None:
    done = tmp_path / "done"
    redirections = " ".join(f"{fd}>&-" for fd in closed)
    command = f'exec "$0" -c "open({str(done)!r}, \'w\').close()" {redirections}'
    ran = subprocess.run(
        ["sh", "-c", command, sys.executable], env=environ | UNBUFFERED, capture_output=True, check=True
    )
    assert done.exists()
    assert (ran.stdout, ran.stderr) == (b"", b"")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudoterminals")
def test_a_terminal_shows_a_prompt_without_its_end(environ: dict[str, str]) -> None:
    ours, theirs = os.openpty()
    program = "import sys\nprint('name', end='? ')\nsys.stdin.readline()\n"
    with subprocess.Popen([sys.executable, "-c", program], env=environ | UNBUFFERED, stdin=theirs, stdout=theirs):
        os.close(theirs)
        seen = b""
        while seen != b"name? ":
            assert select.select([ours], [], [], 500)[0], seen
            seen += os.read(ours, 100)
        os.write(ours, b"\n")
    os.close(ours)
