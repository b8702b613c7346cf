"""Ranks forked from one process that has imported everything."""

import os
import signal
import sys

RANKS = 4


def ranks() -> bool:
    """Forks; whether this process is a rank."""
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS))
            return True
        children.append(child)
    codes = []
    while children:
        child, status = os.wait()
        children.remove(child)
        codes.append(os.waitstatus_to_exitcode(status))
        if codes[-1]:
            for other in children:
                os.kill(other, signal.SIGKILL)
    sys.exit(max(map(abs, codes)))
