"""How the last words of tools are judged in `scripts/bench --only culprits`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.launchers import NONE

from benchmarks import culprit_page, culprits
from benchmarks.culprits import OF_MATRIX, rows
from benchmarks.peers import PEERS, Said
from benchmarks.reported import ROWS, Reported
from benchmarks.verdicts import Row, Verdict, best, judged

ROOT = Path(__file__).resolve().parents[2]
RAISES = Row("raises", "", {}, 1, "LookupError: no such shard: 17")
KILLED = Row("killed", "", {}, 137, "")
EXITS = Row("exits", "", {}, 7, "giving up")
LEAVES = Row("leaves", "", {}, 9, "")
MINUS = Row("exit-minus-one", "", {}, 255, "")
ALIKE = Row("argument", "", {}, 2, "", every=True)
HANGS = Row("hangs", "", {}, 0, "slow_read")
TABLE = """LookupError: no such shard: 17
Failures:
[1]:
  rank      : 2 (local_rank: 0)
  exitcode  : -15 (pid: 27536)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  rank      : 3 (local_rank: 1)
  exitcode  : 1 (pid: 27538)
"""
KILL = TABLE.replace("exitcode  : 1 ", "exitcode  : -9 ")
ABORT = "giving up\nMPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 7."
EXITED = "  Process name: [[15046,1],3]\n  Exit code:    7\n"
OPEN_MPI_5 = "prterun detected that one or more processes exited\n Process name: [prterun-vm-28396@1,3]\n  Exit code: 7"
FT = "LookupError: no such shard: 17\n[ERROR] failed (exitcode: 1) local_rank: 1 (pid: 29065) of binary: python"
OF_FT = "Some rank(s) exited with non-zero exit code: {3: ProcessFailure(local_rank=1, pid=9077, exitcode=-9, "
RAY = "[Rank 3 Error Snippet]:\nTraceback (most recent call last):\nLookupError: no such shard: 17\n"


@pytest.mark.parametrize(
    ("row", "text", "code", "rank", "verdict"),
    [
        (RAISES, TABLE, 1, 3, (True, True, True)),
        (RAISES, TABLE, 1, 2, (False, True, True)),
        (RAISES, TABLE.replace("failure):", "failure)"), 1, 3, (True, True, True)),  # sagemaker-training cuts it
        (KILLED, KILL, 1, 3, (True, True, True)),
        (KILLED, TABLE, 1, 3, (True, False, True)),
        (EXITS, ABORT, 7, 3, (True, True, True)),
        (EXITS, EXITED, None, 3, (True, True, False)),
        (EXITS, OPEN_MPI_5, None, 3, (True, True, False)),
        (
            KILLED,
            "prterun noticed that process rank 3 with PID 5 on node vm exited on signal 9",
            1,
            3,
            (True, True, True),
        ),
        (RAISES, FT, None, 3, (False, True, True)),
        (KILLED, OF_FT, 1, 3, (True, True, True)),
        (RAISES, RAY, 1, 3, (True, True, True)),
        (Row("json-log", "", {}, 2, ""), "rank 3: exits with a connection error code 2", 1, 3, (True, False, True)),
        (
            Row("segfault", "", {}, 139, ""),
            "[Rank 3 Error Snippet]: Some common causes include: (3) the worker crashed due to SIGSEGV",
            1,
            3,
            (True, False, True),
        ),
        (RAISES, "world_rank=0\nTraining failed due to worker errors:\n" + RAY, 1, 3, (True, True, True)),
        (RAISES, "[rank0]: Connection closed by peer" + "." * 4000 + "rank 3: exit code 1", 1, 3, (True, True, False)),
        (EXITS, RAY, 1, 3, (True, False, False)),
        (KILLED, "rank 3 (local rank 1) on algo-2, killed by SIGKILL", 137, 3, (True, True, True)),
        (LEAVES, KILL, 1, 3, (True, False, True)),
        (LEAVES, TABLE.replace("exitcode  : 1 ", "exitcode  : 9 "), 1, 3, (True, True, True)),
        (KILLED, "\x1b[36mrank 3\x1b[0m was killed by \x1b[1mSIGKILL\x1b[0m", None, 3, (True, True, True)),
        (MINUS, ABORT.replace("errorcode 7", "errorcode -1"), 1, 3, (True, True, True)),
        (MINUS, TABLE.replace("exitcode  : 1 ", "exitcode  : -1 "), 1, 3, (True, True, True)),
        (ALIKE, "rank 1 (local rank 1) on algo-1, exit code 2", 2, 3, (True, True, True)),
        (ALIKE, "usage: train.py [-h]", 2, 3, (False, True, True)),
        (HANGS, "rank 3 is in slow_read at program.py:4", 74, 3, (True, True, True)),
        (HANGS, "rank 0: Timed out waiting 15000ms for recv", None, 3, (False, False, False)),
        (KILLED, "rank 3 works\nthe last line of rank 3\n", None, 3, (False, False, True)),
        (KILLED, "", None, 3, (False, False, True)),
    ],
)
def test_what_a_place_names(row: Row, text: str, code: int | None, rank: int, verdict: tuple[bool, bool, bool]) -> None:
    assert judged(row, rank, Said("host 1", text, code)) == verdict


def test_every_row_has_a_program_for_each_collective_and_a_code() -> None:
    found = list(rows())
    assert len({row.name for row in found}) == len(found) > len(OF_MATRIX)
    for row in found:
        assert (row.code or row.name == "hangs") and set(row.programs) == {"torch", "mpi"}
        for program in row.programs.values():
            compile(program, row.name, "exec")


def test_the_place_that_names_most_counts() -> None:
    said = [Said("host 1", "LookupError: no such shard: 17", 1), Said("host 2", TABLE, 1), Said("failure", "", 1)]
    assert best(RAISES, 3, said) == (Verdict(True, True, True), TABLE)
    assert best(RAISES, 3, []) == (Verdict(False, False, False), "")


def test_sixty_reports() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) == 60
    assert not {row.name for row in ROWS} & set(OF_MATRIX)
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", row.source) for row in ROWS if row.source)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_reported_program_does_what_its_row_says(row: Reported, tmp_path: Path) -> None:
    preamble = (ROOT / "tests" / "faults" / "programs" / "preamble.py").read_text()
    (tmp_path / "program.py").write_text(preamble + NONE + row.body)
    ranks = {"FAULT_FOLDER": str(tmp_path), "FAULT_VICTIM": "algo-1 0", "FAULT_RANKS": "1"}
    own = {"SM_CURRENT_HOST": "algo-1", "RANK": "0", "LOCAL_RANK": "0"}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **ranks, **own}, capture_output=True, check=False)
    assert row.code == (done.returncode if done.returncode >= 0 else 128 - done.returncode)
    assert re.search(row.error, (done.stdout + done.stderr).decode())
    assert (tmp_path / "struck").exists()


def test_kept_verdicts_are_of_rows_and_tools_that_there_are() -> None:
    found = culprit_page.verdicts()
    assert set(found) <= {row.name for row in culprits.rows()}
    assert {tool for each in found.values() for tool in each} <= {peer.name for peer in PEERS}
