"""What ended a job's ranks leads the reason, in real jobs: what they had printed before doesn't."""

from __future__ import annotations

import pytest

from .conftest import Local

IGNORED = "import sys\nclass Pool:\n    def __del__(self): raise RuntimeError('del failed')\npool = Pool()\n"
LOGGED = (
    "import logging\ndef up():\n    try: 1 / 0\n    except Exception: logging.exception('upload failed, going on')\n"
    "up()\nfor i in range(5): print('step', i, flush=True)\n"
)
ENDS = {
    "a text": (f"{IGNORED}sys.exit('no data for the validation set')", 1, "no data for the validation set\nrank 0 "),
    "an error line": (
        f"{IGNORED}print('ERROR: no data for the validation set', file=sys.stderr); sys.exit(3)", 3,
        "ERROR: no data for the validation set\nrank 0 "),
    "argparse": (
        f"{IGNORED}import argparse; argparse.ArgumentParser().parse_args(['--lrr', '1'])", 2,
        "program.py: error: unrecognized arguments: --lrr 1\nrank 0 "),
    "a text after steps": (
        f"{LOGGED}raise SystemExit('no data for the validation set')", 1, "no data for the validation set\nrank 0 "),
    "SIGKILL": (
        f"{LOGGED}import os; os.kill(os.getpid(), 9)", 137,
        "rank 0 (local rank 0) on algo-1, killed by SIGKILL (exit code 137)\nits last line: step 4\n"),
}  # fmt: skip


@pytest.mark.lane("suite")
@pytest.mark.parametrize("name", ENDS)
def test_what_ended_the_rank_leads(local: Local, name: str) -> None:
    text, code, lead = ENDS[name]
    words = ("--backend", "process", "--launcher", "ranks", "--slots", "1", local.program(text))
    ran = local.run(*words)
    assert (ran.code, ran.reason[: len(lead)]) == (code, lead), ran.reason


ALIKE = """
import atexit, os, pathlib, time

here = pathlib.Path(os.environ["SM_MODEL_DIR"])

def wait():
    (here / os.environ["RANK"]).touch()
    while len(list(here.iterdir())) < 4: time.sleep(0.01)
    if os.environ["RANK"] != "0": time.sleep(500)

atexit.register(wait)
raise ValueError("bad learning rate of rank " + os.environ["RANK"])
"""


def test_ranks_that_were_told_to_end_behind_the_same_error_are_counted(local: Local) -> None:
    """All have raised it when they are told to end, and are on their way out; the first one, too."""
    ran = local.run("--backend", "process", "--launcher", "ranks", "--slots", "4", local.program(ALIKE))
    assert ran.reason.startswith("ValueError: bad learning rate of rank ")
    assert ran.reason.endswith("\n3 other ranks failed the same way")
