"""Has imported torch and forks itself for each rank: ``python torch_parent.py FD``, where FD is a socket (SEQPACKET).

A request is a JSON object with ``argv``, ``environ`` and ``cwd`` of a rank, and comes with its stdout and stderr; the
answer is its pid, and ``[pid, status]`` once it has ended. A request that is a pid kills that rank. Whatever depends on
variables when torch is imported is read anew in the rank.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict
import torch.distributed.fsdp
import torch.distributed.optim
import torch.utils.checkpoint
from torch import nn

LIMIT = 1 << 20


def load() -> None:
    """Has torch import what it imports when it is first used, which takes seconds, and keeps it from every rank's
    garbage collections."""
    parameter = nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    torch.optim.SGD([parameter]).step()
    gc.collect()
    gc.freeze()


def reap(door: socket.socket, ranks: set[int]) -> None:
    """Says of each rank that has ended how it did, as subprocess does."""
    while ranks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        ranks.discard(pid)
        door.send(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode())


def serve(door: socket.socket) -> list[str]:
    """The words of a rank's command line, in that rank; ends the process in the parent, once nobody asks any more."""
    ranks: set[int] = set()
    woken, wakes = socket.socketpair()
    woken.setblocking(False)
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno())
    while True:
        ready, _, _ = select.select([door, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            reap(door, ranks)
        if door not in ready:
            continue
        text, files, _, _ = socket.recv_fds(door, LIMIT, 2)
        if not text:
            sys.exit()
        asked = json.loads(text)
        if isinstance(asked, int):
            if asked in ranks:
                os.kill(asked, signal.SIGKILL)
            continue
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for file, fd in zip(files, (1, 2), strict=True):
                os.dup2(file, fd)
            for each in (door, woken, wakes):
                each.close()
            os.environ.clear()
            os.environ.update(asked["environ"])
            os.chdir(asked["cwd"])
            dist.set_debug_level_from_env()
            return list(asked["argv"])
        ranks.add(pid)
        door.send(json.dumps(pid).encode())
        for file in files:
            os.close(file)


if __name__ == "__main__":
    load()
    sys.argv = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
