"""What the job's ssh server runs in the place of the command that a session asks for: ``ssh_session.py FILE``.

It tells the supervisor of this host, takes the job's environment from ``FILE`` (JSON, in memory), and becomes the
user's shell with that command. The program belongs to the job from then on: a stop reaches it, and the end takes it
along.
"""

from __future__ import annotations

import json
import os
import socket
import sys

TIMEOUT = 30.0
REFUSED = 255
SFTP = "internal-sftp"


def main() -> None:
    import pwd

    with open(sys.argv[1], encoding="utf-8") as file:
        given = json.load(file)
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    caller = os.environ.get("SSH_CLIENT", "").partition(" ")[0]
    if not admitted(given["socket"], given["token"], caller, command):
        print("musterpoint: this host's part of the job is ending", file=sys.stderr)
        sys.exit(REFUSED)
    environment = {**os.environ, **given["environment"]}
    for name in ("TERM", "SSH_TTY"):
        if name in os.environ:
            environment[name] = os.environ[name]
    shell = pwd.getpwuid(os.geteuid()).pw_shell or "/bin/sh"
    if command == SFTP:
        words = [given["sftp"] or "sftp-server"]
        os.execvpe(words[0], words, environment)
    name = os.path.basename(shell)
    os.execve(shell, [name, "-c", command] if command else ["-" + name], environment)


def admitted(address: str, token: str, caller: str, command: str) -> bool:
    """Tells the supervisor; whether this session may begin."""
    said = " ".join(text.encode("utf-8", "surrogateescape").hex() or "-" for text in (caller, command))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(TIMEOUT)
        try:
            sock.connect("\0" + address[1:] if address.startswith("@") else address)
            sock.sendall(f"{token}\nssh {os.getpid()} {said}\n".encode())
            return sock.recv(16).startswith(b"go")
        except OSError:
            return False


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(f"musterpoint: {error}", file=sys.stderr)
        sys.exit(REFUSED)
