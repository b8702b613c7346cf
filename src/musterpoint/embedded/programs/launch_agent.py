"""The launch agent: what mpirun calls in place of ``ssh`` to start its daemon on another host.

Run as a script, never imported by musterpoint. mpirun calls ``AGENT [options] HOST words…``; the agent hands host and
words to this host's supervisor, which passes them on over the channel. Words are written in hexadecimal, so nothing
needs quoting; an empty one is ``-``. The protocol is lines over a unix socket:

    agent:       TOKEN                  (of the job: nothing else is read before it)
    agent:       start HOST WORD…
    supervisor:  started                (the daemon runs)
    supervisor:  ended STATUS TEXT      (it ended, or could not be started; TEXT is the end of what it wrote)

It exits 0 as soon as the daemon runs, which Open MPI wants (agents that stay hang it where it allows fewer of them at
once than there are hosts). With ``MUSTER_AGENT_STAYS=1`` it stays until the daemon ended, which Hydra wants (MPICH,
Intel MPI). Its own failures are 255, as ssh's.

Like the rank stub it imports nothing that Python hasn't loaded yet but ``_socket``: mpirun starts one per host at once.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found,unused-ignore]
import _socket
import os
import sys

VALUED = "BbcDEeFIiJLlmOopQRSWw"
"""Options of ssh that take a value. They are about a connection, and there is none; but ``-l`` names a user."""


def fail(text: str) -> None:
    os.write(2, f"musterpoint's launch agent: {text}\n".encode("utf-8", "surrogateescape"))
    os._exit(255)


def split(arguments: list[str]) -> tuple[str, list[str]]:
    """The host and the words for it, without the options before them."""
    words = list(arguments)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "--":
            break
        for at, letter in enumerate(option[1:], 2):
            if letter in VALUED:
                value = option[at:] or (words.pop(0) if words else "")
                if letter == "l":
                    check_user(value)
                break
    if len(words) < 2:
        fail("expected [options] HOST COMMAND, as mpirun gives them to a remote shell")
    user, at_sign, host = words[0].rpartition("@")
    if at_sign:
        check_user(user)
    return host, words[1:]


def check_user(name: str) -> None:
    import pwd

    try:
        known = pwd.getpwnam(name).pw_uid
    except KeyError:
        known = -1
    if known != os.geteuid():
        fail(f"asked to start a daemon as user {name!r}: all of this job runs as one user, so name hosts without one")


def connect() -> _socket.socket:
    address = os.environ.get("MUSTER_SOCKET", "")
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
    except OSError as error:
        fail(f"can't reach the supervisor that started mpirun (MUSTER_SOCKET={address!r}): {error.strerror}")
    return sock


def answer(line: str, stays: bool) -> None:
    """Exits as this line says, if it does."""
    word, *rest = line.split()
    if word == "started" and not stays:
        os._exit(0)
    if word == "ended":
        status = int(rest[0])
        os.write(2, bytes.fromhex(rest[1] if len(rest) > 1 else ""))
        os._exit(status if status >= 0 else 128 - status)


def main() -> None:
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())  # mpirun's threads may block what ends this
    host, words = split(sys.argv[1:])
    stays = os.environ.get("MUSTER_AGENT_STAYS") == "1"
    sock = connect()
    text = " ".join(os.fsencode(word).hex() or "-" for word in (host, *words))
    received = b""
    try:
        token = os.environ.get("MUSTER_SOCKET_TOKEN", "")
        sock.sendall(f"{token}\nstart {text}\n".encode())
        while data := sock.recv(65536):
            received += data
            *lines, received = received.split(b"\n")
            for line in lines:
                answer(line.decode(), stays)
    except OSError:
        pass
    fail(f"the supervisor went away while {host} was to start its daemon")


main()
