"""How the last words of tools are judged in `scripts/bench --only culprits`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from benchmarks.culprits import OF_MATRIX, Row, judged, rows
from benchmarks.peers import PEERS, Said

RAISES = Row("raises", "", {}, 1, "LookupError: no such shard: 17")
KILLED = Row("killed", "", {}, 137, "")
EXITS = Row("exits", "", {}, 7, "giving up")
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
FT = "LookupError: no such shard: 17\n[ERROR] failed (exitcode: 1) local_rank: 1 (pid: 29065) of binary: python"
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
        (RAISES, FT, None, 3, (False, True, True)),
        (RAISES, RAY, 1, 3, (True, True, True)),
        (EXITS, RAY, 1, 3, (True, False, False)),
        (KILLED, "rank 3 (local rank 1) on algo-2, killed by SIGKILL", 137, 3, (True, True, True)),
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
        assert row.code and set(row.programs) == {"torch", "mpi"}
        for program in row.programs.values():
            compile(program, row.name, "exec")


def test_no_tool_is_there_twice() -> None:
    assert len({peer.name for peer in PEERS}) == len(PEERS)
