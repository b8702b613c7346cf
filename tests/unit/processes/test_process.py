"""A started process: its descriptors, its group, and errors of exec in the parent."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path

import pytest

from musterpoint.processes.process import CannotStart, Streams, spawn

REPORT = """
import os, signal, sys
print(os.getcwd(), os.getpgid(0) == os.getpid(), os.environ["WHO"], sys.argv[1])
print(signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL or "python's own", len(signal.pthread_sigmask(0, ())))
"""


def run(argv: list[str], environment: dict[str, str], cwd: str) -> tuple[int, str]:
    """The wait status and output of ``argv``."""
    read, write = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        pid = spawn(argv, environment, cwd, Streams(null, write, write))
    finally:
        os.close(write)
        os.close(null)
    with open(read) as file:
        text = file.read()
    return os.waitpid(pid, 0)[1], text


def test_a_process_gets_what_was_asked_for(tmp_path: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        status, text = run([sys.executable, "-c", REPORT, "a b\n$(c)"], {"WHO": "é\n"}, str(tmp_path))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    assert status == 0
    assert text.startswith(f"{tmp_path} True é\n a b\n$(c)\n")
    assert text.endswith(" 0\n"), "no signal is masked"


@pytest.mark.parametrize(
    ("argv", "cwd", "step", "error"),
    [
        (["/nonexistent/program"], "/", "exec", FileNotFoundError),
        (["/etc/passwd"], "/", "exec", PermissionError),
        ([sys.executable], "/nonexistent", "chdir", FileNotFoundError),
    ],
)
def test_what_cannot_start_says_why(argv: list[str], cwd: str, step: str, error: type[OSError]) -> None:
    with pytest.raises(CannotStart) as caught:
        run(argv, dict(os.environ), cwd)
    assert caught.value.step == step
    assert isinstance(caught.value.error, error)


def test_no_room_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fork)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(CannotStart) as caught:
        spawn([sys.executable], {}, "/", Streams(0, 1, 2))
    assert (caught.value.step, caught.value.error.errno) == ("fork", errno.EAGAIN)
    assert os.listdir("/proc/self/fd") == before


def test_no_descriptor_leaks_into_the_process(tmp_path: Path) -> None:
    secret = os.dup2(os.open(tmp_path, os.O_RDONLY), 200, inheritable=False)
    try:
        _, text = run([sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))"], {}, "/")
    finally:
        os.close(secret)
    assert f"'{secret}'" not in text
