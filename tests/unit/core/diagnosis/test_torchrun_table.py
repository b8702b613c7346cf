"""Which rank of the user's own torchrun failed, and how, where torchrun saw another one first."""

from __future__ import annotations

import pytest

from musterpoint.core.diagnosis.evidence import DiagnosisContext, Evidence
from musterpoint.core.diagnosis.program_failures import failure_of_rank
from musterpoint.core.diagnosis.torchrun_table import Table

RULE = "-" * 60
RAISED = """[rank3]: Traceback (most recent call last):
[rank3]:   File "program.py", line 61, in <module>
[rank3]:     raise LookupError("no such shard: 17")
[rank3]: LookupError: no such shard: 17
"""
LOST = """[rank2]: Traceback (most recent call last):
[rank2]:   File "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce
[rank2]:     work.wait()
[rank2]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.77.1.3]:52973
"""


def row(rank: int, local_rank: int, status: int) -> str:
    return f"  rank      : {rank} (local_rank: {local_rank})\n  exitcode  : {status} (pid: 7)\n  error_file: <N/A>\n"


def table(root: str, *others: str) -> str:
    failures = "".join(f"[{number}]:\n{text}" for number, text in enumerate(others, 1)) or "  <NO_OTHER_FAILURES>\n"
    return (
        "Traceback (most recent call last):\n  File \"run.py\", line 1, in <module>\n    main()\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{'=' * 60}\nprogram.py FAILED\n{RULE}\nFailures:\n{failures}{RULE}\n"
        f"Root Cause (first observed failure):\n[0]:\n{root}{'=' * 60}\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tail", "who", "code"),
    [
        (RAISED + LOST + table(row(2, 0, 1), row(3, 1, 1)), "rank 3 (local rank 1) on algo-2, exit code 1", 1),
        (RAISED + LOST + table(row(2, 0, -6), row(3, 1, 1)), "rank 3 (local rank 1) on algo-2, exit code 1", 1),
        (RAISED + LOST + table(row(2, 0, -6), row(3, 1, -15)), "rank 3 (local rank 1) on algo-2, exit code 1", 1),
        (RAISED + table(row(3, 1, 1), row(2, 0, -15)), "rank 3 (local rank 1) on algo-2, exit code 1", 1),
        (RAISED + LOST + table(row(2, 0, 1)), "rank 3 on algo-2, exit code 1", 1),
        (table(row(2, 0, 7), row(3, 1, 1)), "rank 2 (local rank 0) on algo-2, exit code 7", 7),
        (table(row(2, 0, -9)), "rank 2 (local rank 0) on algo-2, killed by SIGKILL (exit code 137)", 137),
    ],
    ids=["lost a peer first", "aborted first", "ended by torchrun", "itself first", "not in it", "silent", "killed"],
)
def test_the_rank_whose_words_are_told(tail: str, who: str, code: int) -> None:
    failure = failure_of_rank(Evidence(1, 0, 1, 0.0, tail=tail.encode()), DiagnosisContext("algo-2"))
    assert who in failure.reason.split("\n")
    assert failure.code == code


def test_what_is_no_table() -> None:
    for tail in ("", "Root Cause (first observed failure):\n", "program.py FAILED\n" + row(2, 0, 1)):
        assert Table.of(tail.encode()) is None
    found = Table.of((table(row(0, 0, 1)) + "again\n" + table(row(2, 0, 1), row(3, 1, 1))).encode())
    assert found is not None
    assert sorted(found.rows) == [2, 3], "rows of the table before"
