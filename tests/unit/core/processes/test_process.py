"""A started process: descriptors, group, errors of exec in the parent; the terminal; the OOM killer's counter."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path

import pytest

from musterpoint.core.processes.process import CannotStart, Streams, Terminal, oom_kills, spawn

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


def test_without_a_terminal_there_is_nothing_to_lend() -> None:
    """tests/hosts/test_terminal.py has one."""
    kept, null = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    before = signal.getsignal(signal.SIGTTOU)
    try:
        terminal = Terminal()
        assert not terminal.lend()
        terminal.take_back()
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(null)
    assert signal.getsignal(signal.SIGTTOU) == before


V2 = "low 0\nhigh 0\nmax 31\noom 4\noom_kill 3\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
V1_GROUPS = "12:cpu,cpuacct:/docker/abc\n5:memory:/docker/abc\n0::/system.slice\n"

OOM_COUNTERS = {
    "v2": ("0::/\n", {"sys/fs/cgroup/memory.events": V2}, 3),
    "v2 seen from the host": ("0::/kubepods/pod1\n", {"sys/fs/cgroup/kubepods/pod1/memory.events": V2}, 3),
    "v2 namespaced": ("0::/../../docker/abc\n", {"sys/fs/cgroup/memory.events": V2}, 3),
    "v1 seen from the host": (V1_GROUPS, {"sys/fs/cgroup/memory/docker/abc/memory.oom_control": V1}, 3),
    "v1 namespaced": (V1_GROUPS, {"sys/fs/cgroup/memory/memory.oom_control": V1}, 3),
    "v1 before Linux 4.13": (V1_GROUPS, {"sys/fs/cgroup/memory/memory.oom_control": "under_oom 0\n"}, 0),
    "garbage": ("x\n", {"sys/fs/cgroup/memory.events": "oom_kill many\n\n"}, 0),
    "nothing mounted": ("0::/\n", {}, 0),
    "no proc": (None, {"sys/fs/cgroup/memory.events": V2}, 3),
}


@pytest.mark.parametrize("layout", OOM_COUNTERS)
def test_oom_kills_in_every_layout_a_container_may_have(layout: str, tmp_path: Path) -> None:
    groups, files, kills = OOM_COUNTERS[layout]
    if groups is not None:
        files = {**files, "proc/self/cgroup": groups}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert oom_kills(str(tmp_path)) == kills
