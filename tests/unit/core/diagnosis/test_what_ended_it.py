"""Programs that print an exception which doesn't end them, each really run: what did end them leads the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.failure import MOST_REASON, Failure
from musterpoint.core.code.program_files import CodeDirectory
from musterpoint.core.diagnosis.evidence import DiagnosisContext, Evidence
from musterpoint.core.diagnosis.program_failures import failure_of_rank

from .whole_programs import PROGRAMS

# what is printed before, with an exception that ends nothing
PRINTED = {
    "ignored at exit": "class Pool:\n    def __del__(self): raise RuntimeError('old news')\npool = Pool()",
    "ignored before": "class Pool:\n    def __del__(self): raise RuntimeError('old news')\nPool()",
    "in a thread": (
        "import threading\ndef beat(): raise OSError('old news')\n"
        "beats = threading.Thread(target=beat); beats.start(); beats.join()"
    ),
    "logged in a function": (
        "import logging\ndef up():\n    try: raise ConnectionError('old news')\n"
        "    except Exception: logging.exception('upload failed, going on')\nup()"
    ),
    "logged at the top": (
        "import logging\ntry: raise ConnectionError('old news')\n"
        "except OSError: logging.exception('upload failed, going on')"
    ),
    "printed in a function": (
        "import traceback\ndef up():\n    try: raise ConnectionError('old news')\n"
        "    except Exception:\n        traceback.print_exc()\n        return None\nup()"
    ),
    "logged in a loop": (
        "import logging\nclass Own(ValueError): pass\nfor n in range(3):\n    try: raise Own('old news')\n"
        "    except ValueError: logging.exception('again')"
    ),
    "printed in a case": (
        "import traceback\nmatch 1:\n  case 1:\n    try: raise ValueError('old news')\n"
        "    except ValueError: traceback.print_exc()"
    ),
    "at exit": "import atexit\ndef save(): raise OSError('old news')\natexit.register(save)",
    "an optional import": (
        "import logging\nlogging.basicConfig()\ntry: import old_news_extras\n"
        "except ImportError: logging.warning('old news: slow path', exc_info=True)"
    ),
    "a task": (
        "import asyncio, gc, logging\nlogging.basicConfig()\nasync def one(): raise OSError('old news')\n"
        "async def main():\n    task = asyncio.create_task(one())\n    await asyncio.sleep(0)\n    del task\n"
        "    gc.collect()\nasyncio.run(main())"
    ),
    "a warning": "import warnings\nwarnings.warn('RuntimeError: old news')",
    "a pool's": (
        "import concurrent.futures as futures, traceback\ndef work(): raise KeyError('old news')\n"
        "with futures.ThreadPoolExecutor(1) as pool: error = pool.submit(work).exception()\n"
        "traceback.print_exception(type(error), error, error.__traceback__)"
    ),
    "in a child": (
        "import multiprocessing\ndef work(): raise KeyError('old news')\n"
        "child = multiprocessing.get_context('fork').Process(target=work); child.start(); child.join()"
    ),
    "in a with": (
        "import contextlib, traceback\nclass Lenient(contextlib.ExitStack):\n    def __exit__(self, *error):\n"
        "        traceback.print_exception(*error)\n        return True\n"
        "def up():\n    with Lenient(): raise ConnectionError('old news')\nup()"
    ),
    "as loguru has it": (
        "sys.stderr.write('''2026-11-22 03:30:00.123 | ERROR    | __main__:up:7 - upload failed\n"
        "Traceback (most recent call last):\n\n"
        '  File "train.py", line 9, in <module>\n    up()\n    └ <function up at 0x7f0a>\n\n'
        '> File "train.py", line 7, in up\n    send()\n    └ <function send at 0x7f0b>\n\n'
        "ConnectionError: old news\n''')"
    ),
    "a logger's own": "import logging\nlogging.basicConfig(level=20)\nlogging.info('old news: %d', 'x')",
    "nothing": "",
}
RAISE = "def step():\n    raise ValueError('bad label in shard 3')\nstep()"
NO_DATA = "no data for the validation set"
# what ends the program -> (statements, how the reason begins)
ENDS = {
    "exit with a text": (f"sys.exit('{NO_DATA}')", NO_DATA),
    "raised with a text": (f"raise SystemExit('{NO_DATA}')", NO_DATA),
    "exit with lines": ('sys.exit("""no column:\n  label\n""")', "no column:"),
    "exit with a format": ("name = 'validation'\nsys.exit(f'no data for the {name} set')", NO_DATA),
    "exit with a value": (f"found = '{NO_DATA}'\nsys.exit(found)", NO_DATA),
    "an error line": (f"print('ERROR: {NO_DATA}', file=sys.stderr)\nsys.exit(3)", f"ERROR: {NO_DATA}"),
    "a logged error": (
        f"import logging\nlogging.basicConfig()\nlogging.error('{NO_DATA}')\nsys.exit(1)", f"ERROR:root:{NO_DATA}"),
    "argparse": (
        "import argparse\nargparse.ArgumentParser(prog='train.py').parse_args(['--lrr', '1'])",
        "train.py: error: unrecognized arguments: --lrr 1"),
    "raise": (RAISE, "ValueError: bad label in shard 3"),
    "raise from": (
        "try: {}['lr']\nexcept KeyError as error: raise ValueError('no rate') from error", "ValueError: no rate"),
    "SIGKILL": ("os.kill(os.getpid(), 9)", "rank 5 (local rank 1) on algo-3, killed by SIGKILL"),
    "SIGSEGV": ("os.kill(os.getpid(), 11)", "rank 5 (local rank 1) on algo-3, killed by SIGSEGV"),
    "faulthandler": (
        "import faulthandler\nfaulthandler.enable()\nos.kill(os.getpid(), 11)",
        "Fatal Python error: Segmentation fault"),
    "terminate": (
        "sys.stderr.write('''terminate called after throwing an instance of 'std::runtime_error'\n"
        "  what():  shard 7 is torn\n''')\nos.abort()", "std::runtime_error: shard 7 is torn"),
    "a code": ("sys.exit(5)", "rank 5 (local rank 1) on algo-3, exit code 5"),
    "a code at once": ("os._exit(3)", "rank 5 (local rank 1) on algo-3, exit code 3"),
}  # fmt: skip
AFTERWARDS = {
    "": "",
    "a monitor": "".join(f"GPU util {n} %\n" for n in range(5)),
    "a trap": "CLEANUP\n",
    "a bar": "\r 10%|#  | 1/3\r 66%|## | 2/3\r100%|###| 3/3\nwandb: run synced\n",
}
STEPS = "print('loading')\nfor step in range(5): print('step', step)\nsys.stdout.flush()\n"


def text_of(printed: str, end: str) -> str:
    return f"import os, sys\n{PRINTED[printed]}\n{STEPS}{ENDS[end][0]}\n"


def run(folder: Path, text: str, apart: bool = False) -> tuple[int, bytes, bytes]:
    """How a program ended, what it printed, and what it printed to its stdout where that is ``apart``."""
    (folder / "train.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-S", folder / "train.py"], stdout=subprocess.PIPE, timeout=50, check=False,
        stderr=subprocess.PIPE if apart else subprocess.STDOUT, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    return done.returncode, done.stderr if apart else done.stdout, done.stdout if apart else b""


def failure_of(folder: Path, status: int, tail: bytes, stdout: bytes = b"") -> Failure:
    context = DiagnosisContext("algo-3", files=CodeDirectory(str(folder)))
    return failure_of_rank(Evidence(5, 1, status, 0.0, tail=tail, stdout_tail=stdout), context)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("printed", PRINTED)
def test_what_ended_the_program_leads(tmp_path: Path, printed: str, end: str) -> None:
    status, output, _ = run(tmp_path, text_of(printed, end))
    for then in AFTERWARDS.values():
        if then and end == "exit with a value":
            break  # nothing tells it from what follows
        reason = failure_of(tmp_path, status, output + then.encode()).reason
        assert reason.startswith(ENDS[end][1])
        assert len(reason.encode()) <= MOST_REASON
        if end.startswith("raise") and "text" not in end:
            assert reason.split("\n")[1].startswith("rank 5"), "what follows it is in its text"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("printed", ["ignored at exit", "logged in a function"])
def test_it_leads_where_stdout_is_apart(tmp_path: Path, printed: str, end: str) -> None:
    assert failure_of(tmp_path, *run(tmp_path, text_of(printed, end), apart=True)).reason.startswith(ENDS[end][1])


def test_what_the_program_survived_is_told_below(tmp_path: Path) -> None:
    status, output, _ = run(tmp_path, text_of("logged in a function", "SIGKILL"))
    assert failure_of(tmp_path, status, output).reason.split("\n") == [
        "rank 5 (local rank 1) on algo-3, killed by SIGKILL (exit code 137)",
        "its last line: step 4",
        "printed before: ConnectionError: old news",
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_ways_to_end(tmp_path: Path, name: str) -> None:
    text, lead = PROGRAMS[name]
    reason = failure_of(tmp_path, *run(tmp_path, f"{text}\n")).reason
    assert f"{reason}\n".removeprefix("__main__.").startswith(lead)


def test_the_cause_is_in_the_reason(tmp_path: Path) -> None:
    text = (
        "def read():\n    try: {}['lr']\n    except KeyError as error: raise LookupError('no rate') from error\n"
        "try: read()\nexcept LookupError as error: raise ValueError('bad configuration') from error\n"
    )
    assert failure_of(tmp_path, *run(tmp_path, text)).reason.split("\n")[:4] == [
        "ValueError: bad configuration",
        "rank 5 (local rank 1) on algo-3, exit code 1",
        "raised from LookupError: no rate",
        "raised from KeyError: 'lr'",
    ]
