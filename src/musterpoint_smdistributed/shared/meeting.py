"""How ranks learn each other's addresses before TensorFlow's servers start: at rank 0, over one connection each.

A rank says its number and its server's port, and proves that it knows the job's token; rank 0 proves the same with its
answer. So a stranger at the port can neither take a rank's place nor send ranks elsewhere. Who started by a launcher
that gives no token is believed by its number alone, first come first served.
"""

from __future__ import annotations

import json
import secrets
import socket
import struct
import time
from typing import Generator, NamedTuple

from .admission import Admission, proof, proves, receive

PATIENCE = 300.0
"""Seconds for all ranks to come."""
CALLER_SECONDS = 20.0
"""Seconds for one caller to say who it is."""
TOKEN = "SMDISTRIBUTED_TOKEN"
"""The variable with the job's token, which musterpoint gives to every rank."""
_RETRY = 0.1
_NONCE = 32
_PROOF = 32
_CLAIM = struct.Struct("<IH")
_LENGTH = struct.Struct("<I")
_LONGEST = 1 << 22
"""Bytes of an answer with the addresses of all ranks."""


class _Claim(NamedTuple):
    """What a caller says of itself; ``nonce``: for rank 0's answer."""

    rank: int
    port: int
    nonce: bytes


def meet(rank: int, size: int, address: str, port: int, token: str = "", patience: float = PATIENCE) -> list[str]:
    """Every rank's ``host:port`` for its server, by rank; the ports are free now.

    ``address`` and ``port``: where rank 0 listens meanwhile (MASTER_ADDR, MASTER_PORT). ``token``: the same on all.
    Raises TimeoutError: not all ranks came; the message says how many are missing.
    """
    until = time.monotonic() + patience
    if rank == 0:
        return _lead(size, port, token.encode(), until)
    return _follow(rank, size, address, port, token.encode(), until)


def _lead(size: int, port: int, token: bytes, until: float) -> list[str]:
    found: dict[int, tuple[socket.socket, _Claim]] = {}
    with socket.create_server(("", port), backlog=128) as server:
        admission: Admission[_Claim] = Admission(server, lambda caller: _listen(caller, size, token), CALLER_SECONDS)
        try:
            while len(found) < size - 1:
                caller, claim = admission.next(until)
                for rank in [rank for rank, (each, _) in found.items() if _has_gone(each)]:
                    found.pop(rank)[0].close()  # it will come again
                if claim.rank in found:
                    caller.close()  # the first one counts
                    continue
                found[claim.rank] = caller, claim
        except TimeoutError:
            missing = sorted({*range(1, size)} - set(found))
            for caller, _ in found.values():
                caller.close()
            raise TimeoutError(
                f"smdistributed.dataparallel: ranks {', '.join(map(str, missing))} of {size} didn't come to port "
                f"{port} of rank 0 within {PATIENCE:.0f} s, or didn't know the job's token ({TOKEN})"
            ) from None
        finally:
            admission.end()
        own = next((caller.getsockname()[0] for caller, _ in found.values()), "")
        everybody = [f"{own}:{_free_port()}"]
        for each in range(1, size):
            caller, claim = found[each]
            everybody.append(f"{caller.getpeername()[0]}:{claim.port}")
        text = json.dumps(everybody).encode()
        for caller, claim in found.values():
            with caller:
                caller.sendall(proof(token, b"answer", claim.nonce, text) + _LENGTH.pack(len(text)) + text)
    return everybody


def _listen(caller: socket.socket, size: int, token: bytes) -> Generator[int, bytes, _Claim]:
    """A caller's number and port. Raises ValueError for a stranger."""
    greeting = secrets.token_bytes(_NONCE)
    caller.send(greeting)
    said = yield _CLAIM.size + _NONCE + _PROOF
    claim, nonce = said[: _CLAIM.size], said[_CLAIM.size : _CLAIM.size + _NONCE]
    rank, port = _CLAIM.unpack(claim)
    if not proves(said[-_PROOF:], token, b"claim", greeting, claim, nonce):
        raise ValueError("it doesn't know the token")
    if not 0 < rank < size or not port:
        raise ValueError(f"there is no rank {rank} to come")
    return _Claim(rank, port, nonce)


def _has_gone(connected: socket.socket) -> bool:
    """Whether the other end has closed the connection; it says nothing more before the answer."""
    try:
        return not connected.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _follow(rank: int, size: int, address: str, port: int, token: bytes, until: float) -> list[str]:
    why = "nobody listens there"
    while True:
        try:
            with socket.create_connection((address, port), max(until - time.monotonic(), 0.001)) as leader:
                return _ask(leader, rank, size, token)
        except (OSError, EOFError, ValueError) as error:
            why = str(error) or why
        if time.monotonic() >= until:
            raise TimeoutError(
                f"smdistributed.dataparallel: rank {rank} couldn't reach rank 0 at {address}:{port} within "
                f"{PATIENCE:.0f} s ({why})"
            )
        time.sleep(_RETRY)


def _ask(leader: socket.socket, rank: int, size: int, token: bytes) -> list[str]:
    """Says who this is, and waits for the answer. Raises ValueError if who listens isn't this job's rank 0."""
    greeting = receive(leader, _NONCE)
    claim, nonce = _CLAIM.pack(rank, _free_port()), secrets.token_bytes(_NONCE)
    leader.sendall(claim + nonce + proof(token, b"claim", greeting, claim, nonce))
    given = receive(leader, _PROOF)
    (length,) = _LENGTH.unpack(receive(leader, _LENGTH.size))
    if length > _LONGEST:
        raise ValueError("who listens there is not rank 0 of this job")
    text = receive(leader, length)
    if not proves(given, token, b"answer", nonce, text):
        raise ValueError(f"who listens there doesn't know the job's token ({TOKEN})")
    everybody = [str(each) for each in json.loads(text)]
    if len(everybody) != size:
        raise ValueError(f"rank 0 counts {len(everybody)} ranks, and this one {size}")
    return everybody


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])
