"""What ended a job's ranks leads the reason, in real jobs: what they had printed before doesn't."""

from __future__ import annotations

from .conftest import Local

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
