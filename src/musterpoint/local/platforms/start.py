"""The command that starts what a platform starts on one host: several processes at once, or one in its directory."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Sequence

from musterpoint.local.platforms.local_platform import HostProcess

_RUN = "import sys; sys.path.append(sys.argv[1]); from musterpoint.local.platforms import start; start.main()"
_IN = 'cd "$0" && exec "$@"'


def command(processes: Sequence[HostProcess]) -> list[str]:
    """The entry point of a host that runs ``processes``; it ends when they have, with the first code that isn't 0.

    A single process takes the place of this command, so that signals to the host are its own.
    """
    if len(processes) == 1:
        argv, environment, cwd = processes[0]
        variables = ["env", *(f"{name}={value}" for name, value in environment.items())] if environment else []
        words = [*variables, *argv]
        return words if cwd == "/" else ["sh", "-c", _IN, cwd, *words]
    source = os.path.abspath(__file__)
    for _ in __name__.split("."):
        source = os.path.dirname(source)
    rows = json.dumps([[list(argv), dict(environment), cwd] for argv, environment, cwd in processes])
    return [sys.executable, "-I", "-S", "-c", _RUN, source, rows]


def main() -> None:
    """Starts the processes of ``sys.argv[2]`` and passes SIGTERM and SIGINT on to each."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    passed_on = (signal.SIGTERM, signal.SIGINT)
    for handled in (*passed_on, signal.SIGCHLD):
        signal.signal(handled, lambda signo, frame: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # one that comes now reaches every process
    pids = {_start(argv, environment, cwd) for argv, environment, cwd in json.loads(sys.argv[2])}
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    code = 0
    while pids:
        select.select([wake], [], [])
        for signo in os.read(wake, 4096):
            for pid in pids if signo != signal.SIGCHLD else ():
                os.kill(pid, signo)
        while pids:
            pid, status = os.waitpid(-1, os.WNOHANG)  # orphans too: this may be the host's PID 1
            if pid == 0:
                break
            ended = os.waitstatus_to_exitcode(status)
            if pid in pids:
                pids.discard(pid)
                code = code or (128 - ended if ended < 0 else ended)
    os._exit(code)


def _start(argv: list[str], environment: dict[str, str], cwd: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(signo, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(cwd)
        os.execvpe(argv[0], argv, {**os.environ, **environment})
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)
