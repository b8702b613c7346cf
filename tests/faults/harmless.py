"""What a job bears: nothing of it is a failure, and the job ends with 0."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from .fault import BEARS, Fault

if TYPE_CHECKING:
    from .job import Seen

THREAD = """
import threading

def load():
    raise LookupError("no such shard: 17")

meet()
if VICTIM:
    strike()
    threading.Thread(target=load).start()
"""
DAEMONS = """
meet()
if VICTIM:
    strike()
if os.fork() == 0:
    os.setsid()
    mark("child-" + RANK)
    rest()
until("child-" + RANK)
"""


def thread_is_in_the_log(seen: Seen) -> None:
    assert "LookupError: no such shard: 17" in seen.logs


ABORT_LINE = """
said = "Abort(7) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process "
print(said + RANK, file=sys.stderr, flush=True)
"""


HARMLESS = (
    Fault(
        "nothing", "nothing goes wrong", BEARS,
        body="meet()\nif VICTIM:\n    strike()\n",
    ),
    Fault(
        "thread", "an exception ends a thread of a rank, and only that", BEARS, body=THREAD, also=thread_is_in_the_log,
        in_cut=False,
    ),
    Fault(
        "silenced", "a rank closes its output and goes on", BEARS, in_cut=False,
        body="meet()\nif VICTIM:\n    strike()\n    os.close(1)\n    os.close(2)\n    time.sleep(1)\n",
    ),
    Fault(
        "daemons", "every rank ends and leaves a child in a session of its own", BEARS, body=DAEMONS, in_cut=False,
        without={"mpich": "its ranks may wait in MPI_Finalize for connections that another rank's child keeps open"},
    ),
    Fault(
        "says-abort", "a rank prints what MPICH says of an `MPI_Abort`, and ends with 0", BEARS, in_cut=False,
        body="meet()\nif VICTIM:\n    strike()\n" + textwrap.indent(ABORT_LINE, "    "),
    ),
    Fault(
        "early-leader", "the leader's ranks end long before the others", BEARS,
        body="meet()\nif HOST == 'algo-1':\n    sys.exit()\ntime.sleep(2)\nif VICTIM:\n    strike()\n",
    ),
    Fault(
        "early-worker", "a worker's ranks end long before the others", BEARS,
        body="meet()\nif VICTIM:\n    strike()\nif HOST != 'algo-2':\n    time.sleep(2)\n", wait=2,
    ),
)  # fmt: skip
