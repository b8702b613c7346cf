"""Asks NCCL's RAS, which listens in every process that has a communicator, what it knows of a job.

It is asked as ``ncclras`` does it, without that program: lines of text to ``localhost``, port 28028, and the answer up
to the end of the connection. Source: ``NVIDIA/nccl: src/ras/client.cc``, ``src/ras/client_support.cc`` and
``docs/userguide/source/troubleshooting/ras.rst``; versions 2.24 to 2.30 speak one protocol (its number is 2).
"""

from __future__ import annotations

import socket

ADDRESS = ("localhost", 28028)
SECONDS = 5.0
"""For one step of the talk; RAS itself gives up on a process after as long."""


def asked(address: tuple[str, int] = ADDRESS, seconds: float = SECONDS) -> str:
    """The whole answer to a verbose question; where there is none, a sentence that says why."""
    try:
        with socket.create_connection(address, seconds) as talk, talk.makefile("r", errors="replace") as said:
            talk.settimeout(seconds * 3)
            for question, answer in (("CLIENT PROTOCOL 2", "SERVER PROTOCOL "), (f"TIMEOUT {seconds:.0f}", "OK")):
                talk.sendall(f"{question}\n".encode())
                line = said.readline()
                if not line.startswith(answer):
                    return f"RAS answered {line!r} to {question!r}"
            talk.sendall(b"VERBOSE STATUS\n")
            return said.read()
    except OSError as error:
        return f"RAS can't be asked at {address[0]}:{address[1]}: {error}"


def summary(answer: str) -> list[str]:
    """The lines of an ``answer`` that say something of communicators: their table, errors and warnings."""
    lines = [line.rstrip() for line in answer.splitlines()]
    start = next((at for at, line in enumerate(lines) if line.startswith("Communicators")), len(lines))
    return [line for line in lines[start:] if line.strip() and set(line.strip()) != {"="}][:40]
