"""Programs that print an exception which doesn't end them, each really run: what did end them leads the reason."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from musterpoint.base.failure import MOST_REASON, Failure
from musterpoint.core.diagnosis.facts import DiagnosisContext, RankEnd
from musterpoint.core.diagnosis.failures import failure_of_rank
from musterpoint.core.supervise.program_files import CodeDirectory

OLD = "old news"
"""In the message of every exception that the program survives."""
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
    "at exit": "import atexit\ndef save(): raise OSError('old news')\natexit.register(save)",
    "an optional import": (
        "import logging\nlogging.basicConfig()\ntry: import old_news_extras\n"
        "except ImportError: logging.warning('old news: slow path', exc_info=True)"
    ),
    "a task": (
        "import asyncio, gc, logging\nlogging.basicConfig()\nasync def one(): raise OSError('old news')\n"
        "async def main():\n    task = asyncio.create_task(one())\n    await asyncio.sleep(0)\n    del task\n    gc.collect()\n"
        "asyncio.run(main())"
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
        "sys.stderr.write('''2026-11-22 03:30:00.123 | ERROR    | __main__:up:7 - upload failed\nTraceback (most recent "
        'call last):\n\n  File "train.py", line 9, in <module>\n    up()\n    └ <function up at 0x7f0a>\n\n'
        '> File "train.py", line 7, in up\n    send()\n    └ <function send at 0x7f0b>\n\n'
        "ConnectionError: old news\n''')"
    ),
    "nothing": "",
}
RAISE = "def step():\n    raise ValueError('bad label in shard 3')\nstep()"
NO_DATA = "no data for the validation set"
# what ends the program -> (statements, how the reason begins)
ENDS = {
    "exit with a text": (f"sys.exit('{NO_DATA}')", NO_DATA),
    "raised with a text": (f"raise SystemExit('{NO_DATA}')", NO_DATA),
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


CASES = [
    (printed, end, list(AFTERWARDS)[turn % len(AFTERWARDS)])
    for turn, (printed, end) in enumerate(itertools.product(PRINTED, ENDS))
]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[Path, int, bytes]]:
    """Where each program is, how it ended and what it printed."""
    root = tmp_path_factory.mktemp("programs")

    def run(case: tuple[str, str]) -> tuple[Path, int, bytes]:
        folder = root / f"{list(PRINTED).index(case[0])}-{list(ENDS).index(case[1])}"
        folder.mkdir()
        (folder / "train.py").write_text(text_of(*case))
        done = subprocess.run(
            [sys.executable, "-S", folder / "train.py"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=50,
            check=False, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        return folder, done.returncode, done.stdout

    with ThreadPoolExecutor(2) as pool:
        cases = list(itertools.product(PRINTED, ENDS))
        return dict(zip(cases, pool.map(run, cases)))


@pytest.mark.parametrize(("printed", "end", "then"), CASES)
def test_what_ended_the_program_leads(
    ended: dict[tuple[str, str], tuple[Path, int, bytes]], printed: str, end: str, then: str
) -> None:
    folder, status, output = ended[printed, end]
    reason = reason_of(folder, status, output + AFTERWARDS[then].encode()).reason
    assert reason.startswith(ENDS[end][1])
    assert len(reason.encode()) <= MOST_REASON


def reason_of(folder: Path, status: int, output: bytes) -> Failure:
    context = DiagnosisContext("algo-3", files=CodeDirectory(str(folder)))
    return failure_of_rank(RankEnd(5, 1, status, 0.0, tail=output), context)
