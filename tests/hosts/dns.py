"""A name server with faults: ``python dns.py ADDRESS NAMES``, NAMES as JSON.

``NAMES`` maps a name to ``{"a": […], "aaaa": […], "fault": …, "seconds": S, "wrong": ADDRESS}``. For its first ``S``
seconds a name with a fault behaves so: ``nxdomain`` (no such name), ``servfail`` (the server is ill), ``drop`` (no
answer), ``wrong`` (another address). The fault ``drop-aaaa`` leaves questions for IPv6 addresses without an answer,
always. Prints ``ready`` when it listens.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from typing import Any

A, AAAA = 1, 28
NOERROR, SERVFAIL, NXDOMAIN = 0, 2, 3


def question(packet: bytes) -> tuple[str, int, bytes]:
    """The name asked for, the type, and the question's own bytes."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode("latin1"))
        at += 1 + packet[at]
    return ".".join(labels).lower(), struct.unpack(">H", packet[at + 1 : at + 3])[0], packet[12 : at + 5]


def answer(entry: dict[str, Any] | None, kind: int, age: float) -> tuple[int, list[bytes]] | None:
    """The reply's code and packed addresses; None for no reply."""
    if entry is None:
        return NXDOMAIN, []
    fault = entry.get("fault") if age < entry.get("seconds", 0.0) or entry.get("fault") == "drop-aaaa" else None
    if fault == "drop" or (fault == "drop-aaaa" and kind == AAAA):
        return None
    if fault == "nxdomain":
        return NXDOMAIN, []
    if fault == "servfail":
        return SERVFAIL, []
    if kind == A:
        texts = [entry["wrong"]] if fault == "wrong" else entry.get("a", [])
        return NOERROR, [socket.inet_pton(socket.AF_INET, text) for text in texts]
    if kind == AAAA:
        return NOERROR, [socket.inet_pton(socket.AF_INET6, text) for text in entry.get("aaaa", [])]
    return NOERROR, []


def serve(address: str, names: dict[str, dict[str, Any]]) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((address, 53))
        print("ready", flush=True)
        started = time.monotonic()
        while True:
            packet, caller = sock.recvfrom(4096)
            name, kind, asked = question(packet)
            reply = answer(names.get(name), kind, time.monotonic() - started)
            if reply is None:
                continue
            code, found = reply
            head = packet[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, len(found), 0, 0)
            rows = [b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(data)) + data for data in found]
            sock.sendto(head + asked + b"".join(rows), caller)


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
