"""The rank stub: what a foreign launcher starts for every rank, in place of the user's program.

Run as a script (its text is at ``MUSTER_STUB``), never imported by musterpoint. It tells this host's supervisor
which rank it is, gets the rank's output pipes from it, runs the user's program (all words after ``--``) in a process
group of its own, swallows and reports the launcher's signals, reports how the program ended, and holds its own exit
until it is released. So exact codes and the stop come the same way from every launcher.

One runs per rank, so it is kept small: ``socket`` and ``signal`` in place of their private halves would cost 6 ms and
1 MiB each time, and parts between two blank lines are compiled one by one. The protocol is lines over a unix socket:

    stub:        TOKEN              (of the job: nothing else is read before it)
    stub:        rank RANK LOCAL_RANK WORLD_SIZE PID
    supervisor:  go                 (with the pipes' write ends as ancillary data)
    stub:        started PID
    stub:        signal NUMBER      (the launcher sent it; swallowed)
    stub:        ended STATUS       (a wait status)
    supervisor:  release
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found,unused-ignore]
import _socket
import os
import select
import sys


def first(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def identity() -> list[str]:
    """Rank, local rank and world size. Plans for MPI set WORLD_SIZE, so there MPI's own variable comes first."""
    if first("MUSTER_FIRST_RANK"):  # its launcher would number this host's slots from elsewhere
        os.environ["LOCAL_RANK"] = str(int(first("RANK")) - int(first("MUSTER_FIRST_RANK")))
    if first("RANK"):
        return [first("RANK"), first("LOCAL_RANK") or "0", first("WORLD_SIZE") or "1"]
    return [
        first("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK") or "0",
        first(
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "MPI_LOCALRANKID",
            "MV2_COMM_WORLD_LOCAL_RANK",
            "PALS_LOCAL_RANKID",
            "LOCAL_RANK",
        )
        or "0",
        first("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE") or "1",
    ]


def connect(rank: str, local: str, world: str) -> _socket.socket:
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    os.set_inheritable(sock.fileno(), False)
    address = os.environ["MUSTER_SOCKET"]
    sock.connect("\0" + address[1:] if address.startswith("@") else address)
    token = os.environ.get("MUSTER_SOCKET_TOKEN", "")
    sock.send(f"{token}\nrank {rank} {local} {world} {os.getpid()}\n".encode())
    return sock


def receive_pipes(sock: _socket.socket) -> list[int]:
    """Waits for ``go``; the two descriptors come with it."""
    data, ancillary, _flags, _address = sock.recvmsg(16, 256)
    pipes = []
    for level, kind, payload in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            pipes += [int.from_bytes(payload[i : i + 4], sys.byteorder) for i in range(0, len(payload) // 4 * 4, 4)]
    if not data.startswith(b"go") or len(pipes) != 2:
        os._exit(70)
    return pipes


def environment_of(rank: str, local: str) -> dict[str, str]:
    """The program's environment: with what was taken out for its launcher's sake, and with its rank."""
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    environment["RANK"] = environment.get("RANK") or rank
    environment["LOCAL_RANK"] = environment.get("LOCAL_RANK") or local
    if environment.get("MUSTER_ATTEMPT"):  # torchrun's agent is another one in every attempt, and always says 0
        environment["TORCHELASTIC_RESTART_COUNT"] = environment["MUSTER_ATTEMPT"]
    for name in ("PYTHONPATH", "TMPDIR", "PATH", "LD_LIBRARY_PATH", "PYTHONINSPECT"):
        value = os.environ.get("MUSTER_USER_" + name)
        if value is not None:
            environment.pop(name, None)
        if value:
            environment[name] = value
    return environment


OURS = (
    "MUSTER_STUB",
    "MUSTER_EXPAND",
    "MUSTER_SOCKET",
    "MUSTER_AGENT_STAYS",
    "MUSTER_LOCAL_RANK_AT",
    "MUSTER_FIRST_RANK",
    "MUSTER_CPUS",
    "MUSTER_USER_CWD",
    "MUSTER_USER_PYTHONPATH",
    "MUSTER_USER_TMPDIR",
    "MUSTER_USER_PATH",
    "MUSTER_USER_LD_LIBRARY_PATH",
    "MUSTER_USER_PYTHONINSPECT",
)


def expanded(words: list[str], environment: dict[str, str]) -> list[str]:
    """The words with the values of ``$LOCAL_RANK`` and the like, in AzureML jobs."""
    for name in EXPANDED if os.environ.get("MUSTER_EXPAND") else ():
        if name in environment:
            words = [replaced(word.replace("${" + name + "}", environment[name]), name, environment) for word in words]
    return words


def replaced(word: str, name: str, environment: dict[str, str]) -> str:
    begin, *parts = word.split("$" + name)
    for part in parts:
        longer = part[:1].isalnum() or part[:1] == "_"
        begin += ("$" + name if longer else environment[name]) + part
    return begin


EXPANDED = ("LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "RANK")


def run_program(argv: list[str], environment: dict[str, str], pipes: list[int], local: int) -> int:
    """Forks the user's program and returns its pid.

    Other descriptors of the launcher (Hydra's PMI_FD) stay open on both sides: if they were closed here, the launcher
    would take it for a crash and end the other ranks.
    """
    pid = os.fork()
    if pid:
        for fd in set(pipes):
            os.close(fd)
        return pid
    try:
        if os.isatty(pipes[0]):
            take_terminal(pipes[0])
        else:
            os.setpgid(0, 0)
        bind(local)
        os.dup2(pipes[0], 1)
        os.dup2(pipes[1], 2)
        for signo in SWALLOWED:
            _signal.signal(signo, _signal.SIG_DFL)
        for signo in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGCHLD):
            _signal.signal(signo, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        cwd = os.environ.get("MUSTER_USER_CWD")
        if cwd:
            os.chdir(cwd)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(126 if error.errno == 13 else 127)
    finally:
        os._exit(127)


def bind(local: int) -> None:
    """Runs on the processors that the plan gives this local rank, if it does."""
    sets = os.environ.get("MUSTER_CPUS", "").split(";")
    cpus: set[int] = set()
    for part in sets[local].split(",") if 0 <= local < len(sets) else ():
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1) if first else ())
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
    except OSError:  # they were taken from this host's control group meanwhile
        pass


def take_terminal(fd: int) -> None:
    """A terminal for this rank alone (muster local --debug): it is its stdin, too, and Ctrl-C there is its own."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
    os.dup2(fd, 0)


SWALLOWED = [_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2]
if _signal.getsignal(_signal.SIGHUP) == _signal.SIG_IGN:  # nohup is for the program, too
    SWALLOWED.remove(_signal.SIGHUP)


def watch(sock: _socket.socket, pid: int, wake: int) -> int:
    """Reports signals and the program's end until the supervisor releases us; returns the wait status."""
    status = None
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        for fd, _events in poll.poll():
            if fd == wake:
                for signo in os.read(wake, 256):
                    if signo != _signal.SIGCHLD:
                        sock.send(f"signal {signo}\n".encode())
                if status is None:
                    status = status_of(pid)
                    if status is not None:
                        sock.send(f"ended {status}\n".encode())
                        reap(pid)
            else:
                try:
                    order = sock.recv(64)
                except OSError:
                    order = b""
                if not order:  # the supervisor is gone, and with it the job
                    if status is None:
                        os.kill(pid, _signal.SIGKILL)
                        os.killpg(pid, _signal.SIGKILL)
                    os._exit(70)
                if order.startswith(b"release") and status is not None:
                    return status


def status_of(pid: int) -> int | None:
    """The wait status of the program, None while it runs. The program isn't reaped: a launcher may kill this stub
    before it has told the status, and the supervisor inherits the program then, and its status.
    """
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        ended, status = os.waitpid(pid, os.WNOHANG)
        return status if ended else None
    end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if end is None:
        return None
    if end.si_code == os.CLD_EXITED:
        return end.si_status << 8
    return end.si_status | (0x80 if end.si_code == os.CLD_DUMPED else 0)


def reap(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:  # where its status could not be had otherwise
        pass


def end_as(status: int) -> None:
    """Ends like the program did, so that the launcher sees the same."""
    if os.WIFSIGNALED(status):
        signo = os.WTERMSIG(status)
        if signo not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(signo, _signal.SIG_DFL)
        os.kill(os.getpid(), signo)
    os._exit(os.WEXITSTATUS(status))


def main() -> None:
    end = sys.argv.index("--")
    words = sys.argv[end + 1 :]
    rank, local, world = identity()
    local = "".join(sys.argv[1:end]) or local  # torchrun's number of the slot where it calls all of them 0
    at, dashes, flag = os.environ.get("MUSTER_LOCAL_RANK_AT", "").partition("--")
    if dashes and int(at) >= 0:  # as in 2--local_rank: DeepSpeed's own launcher passes it so
        words.insert(int(at), f"{dashes}{flag}={local}")
    wake, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    for signo in (*SWALLOWED, _signal.SIGCHLD):
        _signal.signal(signo, lambda *_: None)
    _signal.set_wakeup_fd(wake_write)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())  # a launcher's threads may block what its children inherit
    try:
        sock = connect(rank, local, world)
        environment = environment_of(rank, local)
        pid = run_program(expanded(words, environment), environment, receive_pipes(sock), int(local))
        sock.send(f"started {pid}\n".encode())
        status = watch(sock, pid, wake)
    except OSError:  # nobody at the control socket: the job is over
        os._exit(70)
    end_as(status)


main()
