"""Becomes the user's program when Ray's cluster is complete: ``ray_driver.py HEAD NODES SECONDS PROGRAM...``.

Run by the user's Python on the leader, never imported by musterpoint. ``NODES`` are ``name=address,...``. Ray asks
nobody to wait for all nodes: a program that starts early trains on those that are there.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

TRY_SECONDS = 0.1
SAY_SECONDS = 30.0
ANSWER_SECONDS = 5.0
CANNOT_START = 72


def main() -> None:
    head, words, seconds, *program = sys.argv[1:]
    nodes = dict(pair.partition("=")[::2] for pair in words.split(","))
    # Ray and what it needs are not the user's modules beside the program
    own = [os.path.abspath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path = [folder for folder in sys.path if os.path.abspath(folder) not in own]
    wait_for(head, nodes, float(seconds))
    try:
        os.execvp(program[0], program)
    except OSError as error:
        say(f"can't execute {program[0]}: {error.strerror}")
        sys.exit(64)


def wait_for(head: str, nodes: dict[str, str], seconds: float) -> None:
    """Returns when as many nodes are alive as there are in ``nodes``; ends this program after ``seconds``."""
    began = said = time.monotonic()
    error = ""
    while True:
        try:
            alive = addresses(head)
            error = ""
        except Exception as problem:  # the head doesn't answer yet, or not to us
            alive, error = [], str(problem).strip()
        missing = [f"{name} ({address})" for name, address in nodes.items() if address not in alive]
        now = time.monotonic()
        if len(alive) >= len(nodes):
            say(f"Ray's cluster has all of its {len(nodes)} nodes after {now - began:.1f} s")
            return
        lacks = f"{len(alive)} of {len(nodes)} nodes after {now - began:.0f} s; missing: {', '.join(missing)}"
        lacks += f" ({error})" if error else ""
        if now - began >= seconds:
            reason = (
                f"Ray's cluster is not complete, and --rollcall-timeout is over: it has {lacks}; their logs say why"
            )
            say(reason)
            report(reason, next(iter(nodes)))
            sys.exit(CANNOT_START)
        if now - said >= SAY_SECONDS:
            said = now
            say(f"Ray's cluster has {lacks}")
        time.sleep(TRY_SECONDS)


def addresses(head: str) -> list[str]:
    """The addresses of the nodes that are alive. Asks the head alone: no raylet is needed for that."""
    host, _, port = head.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()  # GcsClient would complain
    from ray._raylet import GcsClient  # type: ignore[import-untyped,import-not-found,unused-ignore]

    found: dict[Any, Any] = GcsClient(address=head).get_all_node_info(timeout=5)
    return [node.node_manager_address for node in found.values() if node.state == 0]


def report(reason: str, host: str) -> None:
    """Tells the supervisor that it wasn't the user's program that failed, as a launch that comes to nothing does."""
    address, token = os.environ.get("MUSTER_OUTER", ""), os.environ.get("MUSTER_SOCKET_TOKEN", "")
    failure = {"host": host, "code": CANNOT_START, "cause": "muster", "kind": "infra", "reason": f"muster: {reason}"}
    ended = json.dumps({"pid": os.getpid(), "failure": failure, "warnings": []})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_SECONDS)
        try:
            sock.connect("\0" + address[1:] if address.startswith("@") else address)
            sock.sendall(f"{token}\nended {ended}\n".encode())
            sock.recv(64)
        except OSError:
            pass  # the exit code and the log say it as well


def say(text: str) -> None:
    print(f"musterpoint: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
