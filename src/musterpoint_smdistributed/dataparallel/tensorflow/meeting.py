"""How ranks learn each other's addresses before TensorFlow's servers start: at rank 0, over one connection each."""

from __future__ import annotations

import json
import socket
import time

PATIENCE = 300.0
"""Seconds for all ranks to come."""
_RETRY = 0.1
_LONGEST = 1 << 16


def meet(rank: int, size: int, address: str, port: int, patience: float = PATIENCE) -> list[str]:
    """Every rank's ``host:port`` for its server, by rank; the ports are free now.

    ``address`` and ``port``: where rank 0 listens meanwhile (MASTER_ADDR, MASTER_PORT).

    Raises:
        TimeoutError: not all ranks came; the message says how many are missing.
    """
    until = time.monotonic() + patience
    return _lead(size, port, until) if rank == 0 else _follow(rank, address, port, until)


def _lead(size: int, port: int, until: float) -> list[str]:
    found: dict[int, str] = {}
    callers: list[socket.socket] = []
    own = ""
    with socket.create_server(("", port)) as server:
        while len(found) < size - 1:
            server.settimeout(max(until - time.monotonic(), 0.001))
            try:
                caller, (host, *_rest) = server.accept()
            except TimeoutError:
                missing = sorted({*range(1, size)} - set(found))
                raise TimeoutError(
                    f"smdistributed.dataparallel: ranks {', '.join(map(str, missing))} of {size} didn't come to port "
                    f"{port} of rank 0 within {PATIENCE:.0f} s"
                ) from None
            caller.settimeout(max(until - time.monotonic(), 0.001))
            try:
                told = json.loads(caller.makefile("rb").readline(_LONGEST))
                number, its_port = int(told["rank"]), int(told["port"])
            except (OSError, ValueError, KeyError, TypeError):
                caller.close()  # no rank of ours
                continue
            found[number] = f"{host}:{its_port}"
            own = caller.getsockname()[0]
            callers.append(caller)
        found[0] = f"{own}:{_free_port()}"
        everybody = [found[number] for number in range(size)]
        for caller in callers:
            with caller:
                caller.sendall(json.dumps(everybody).encode() + b"\n")
    return everybody


def _follow(rank: int, address: str, port: int, until: float) -> list[str]:
    while True:
        try:
            with socket.create_connection((address, port), max(until - time.monotonic(), 0.001)) as leader:
                leader.sendall(json.dumps({"rank": rank, "port": _free_port()}).encode() + b"\n")
                line = leader.makefile("rb").readline()
            if line:
                return [str(each) for each in json.loads(line)]
        except OSError as error:
            if time.monotonic() >= until:
                raise TimeoutError(
                    f"smdistributed.dataparallel: rank {rank} couldn't reach rank 0 at {address}:{port} within "
                    f"{PATIENCE:.0f} s ({error})"
                ) from None
        time.sleep(_RETRY)


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
        return port
