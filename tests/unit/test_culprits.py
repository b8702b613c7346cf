"""How the last words of tools are judged in `scripts/bench --only culprits`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from tests.faults.launchers import NONE

from benchmarks.culprit_record import Record, Trial
from benchmarks.culprits import AGAIN, OF_MATRIX, chosen, figure, is_due, rows
from benchmarks.peers import PEERS, Said, Told
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
        (RAISES, FT, None, 3, (False, True, True)),
        (KILLED, OF_FT, 1, 3, (True, True, True)),
        (RAISES, RAY, 1, 3, (True, True, True)),
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


def test_no_tool_is_there_twice() -> None:
    assert len({peer.name for peer in PEERS}) == len(PEERS)


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


VERSIONS = {"torchrun": "2.13.0", "Ray Train": "2.60.0"}
TORCHRUN, RAY = (next(peer for peer in PEERS if peer.name == name) for name in VERSIONS)
ROW = RAISES._replace(programs={"torch": "raise", "mpi": "raise"})


def trial(text: str = TABLE, patience: float = 1.0, cut: bool = False) -> Trial:
    return Trial(TORCHRUN.name, ROW.name, ROW.digest(TORCHRUN), patience, Told([Said("host 1", text, 1)], 3, cut))


def test_what_was_said_is_kept_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "found.json.part"
    record = Record(path, VERSIONS)
    assert record.verdict(ROW, TORCHRUN) is None
    record.add(trial("nothing"))
    record.add(trial(patience=AGAIN))
    again = Record(path, VERSIONS)
    assert again.of(ROW, TORCHRUN) == [trial("nothing"), trial(patience=AGAIN)]
    assert again.verdict(ROW, TORCHRUN) == (Verdict(True, True, True), TABLE)
    changed = ROW._replace(programs={"torch": "raise Other", "mpi": "raise"})
    assert again.verdict(changed, TORCHRUN) is None, "another program"


def test_a_line_that_was_not_written_whole_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "found.json.part"
    Record(path, VERSIONS).add(trial())
    whole = path.read_bytes()
    path.write_bytes(whole + '{"tool": "Ray Träin", "ro'.encode()[:-3])
    record = Record(path, VERSIONS)
    assert record.of(ROW, TORCHRUN) == [trial()]
    assert path.read_bytes() != whole, "who only reads changes nothing"
    record.add(trial("nothing"))
    assert path.read_bytes().startswith(whole)
    assert Record(path, VERSIONS).of(ROW, TORCHRUN) == [trial(), trial("nothing")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1 is no JSON object"),
        ("{}\n", "line 1 is not of this benchmark (expected the format 'culprits 1')"),
        ("[1]\n", "line 1 is no JSON object"),
        ("bench: no JSON\n", "line 1 is no JSON object"),
        ('{"format": "culprits 0"}\n', "line 1 is not of this benchmark (expected the format 'culprits 1')"),
        (
            json.dumps({"format": "culprits 1", "versions": {**VERSIONS, "torchrun": "2.12.0"}}) + "\n",
            "it is of torchrun 2.12.0, and here is torchrun 2.13.0",
        ),
        (json.dumps({"format": "culprits 1", "versions": VERSIONS}) + '\n{"tool"\n', "line 2 is no JSON object"),
        (json.dumps({"format": "culprits 1", "versions": VERSIONS}) + '\n{"tool": 1}\n', "line 2 is no trial"),
    ],
)
def test_a_bad_file_is_refused_and_left_alone(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "found.json.part"
    path.write_text(text)
    with pytest.raises(SystemExit) as refused:
        Record(path, VERSIONS)
    advice = "nothing was changed there; give another --json FILE, or remove found.json.part"
    assert str(refused.value) == f"bench: {path}: {said}: {advice}"
    assert path.read_text() == text


def test_a_row_is_tried_again_only_where_a_tool_that_said_too_little_was_cut_off() -> None:
    for text, cut, again in [(TABLE, True, False), ("nothing", False, False), ("nothing", True, True)]:
        record = Record(None, VERSIONS)
        assert is_due(record, ROW, TORCHRUN, 1.0)
        record.add(trial(text, cut=cut))
        assert not is_due(record, ROW, TORCHRUN, 1.0)
        assert is_due(record, ROW, TORCHRUN, AGAIN) is again
        record.add(trial("nothing", AGAIN, True))
        assert not is_due(record, ROW, TORCHRUN, AGAIN)


def test_a_failure_at_exit_is_none_where_ranks_are_threads() -> None:
    row = ROW._replace(at_exit=True)
    assert not is_due(Record(None, VERSIONS), row, RAY, 1.0)
    assert is_due(Record(None, VERSIONS), row, TORCHRUN, 1.0)


def test_shares_are_of_the_rows_that_were_run() -> None:
    record = Record(None, VERSIONS)
    record.add(trial())
    found = figure(TORCHRUN, record, [ROW, ROW._replace(name="other")], "2.13.0")
    assert found.measured == "100 % of 1 (rank 100 %, code 100 %, error 100 %)"
    assert figure(RAY, record, [ROW], "2.60.0").measured == "0 % of 0 (rank 0 %, code 0 %, error 0 %)"


def test_the_order_of_rows_does_not_depend_on_which_are_chosen() -> None:
    names = [row.name for row in chosen(())]
    assert [row.name for row in chosen(("raises", "hydra", "killed"))] == [
        name for name in names if name in ("raises", "hydra", "killed")
    ]
