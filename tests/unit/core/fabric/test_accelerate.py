"""The answers of the program that asks accelerate; the real one is asked in tests/hosts."""

from __future__ import annotations

import json
import pwd
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import LauncherError, MusterError, UsageError
from musterpoint.base.probe import Answer
from musterpoint.core.fabric import ssh
from musterpoint.core.fabric.accelerate_config import Accelerate, ask_accelerate
from musterpoint.core.fabric.ssh import find_ssh

ANSWER = {
    "version": "1.15.0", "file": "", "kind": "cpu", "on_cpus": True, "backend": "gloo",
    "variables": {"ACCELERATE_USE_CPU": "true"}, "shape": {"num_processes": [4, "words"]}, "unused": ["tee"],
    "script": "train.py", "module": False, "no_python": False, "arguments": ["--lr", "1"],
}  # fmt: skip


def asked(status: int | None, text: str) -> Accelerate:
    seen: list[Any] = []

    def how(words: Any, environ: Any, cwd: str, errors: bool) -> Answer:
        seen.append((words[0], json.loads(words[3]), cwd))
        return Answer(status, text)

    found = ask_accelerate("/usr/bin/python3", ["--cpu", "train.py"], "a.yaml", "/code", {}, how)
    request = {"words": ["--cpu", "train.py"], "config": "a.yaml", "folder": "/code"}
    assert seen == [("/usr/bin/python3", request, "/")]
    return found


def test_an_answer_among_warnings() -> None:
    found = asked(0, f"a warning\n{json.dumps(ANSWER)}\nanother one\n")
    assert (found.backend, found.variables, found.arguments) == ("gloo", ANSWER["variables"], ("--lr", "1"))
    assert (found.given("num_processes", "words"), found.given("num_processes", "file")) == (4, None)
    assert found.given("num_machines", "words") is None


@pytest.mark.parametrize(
    ("status", "text", "error", "words"),
    [
        (0, '{"error": "accelerate launch: unrecognized arguments: --x"}', UsageError, "unrecognized arguments: --x"),
        (1, "Traceback\nModuleNotFoundError: No module named 'accelerate'", LauncherError, "install accelerate"),
        (1, "Traceback\nImportError: libcudart.so.12", LauncherError, r"\(exit code 1\): ImportError: libcudart.so.12"),
        (-9, "", LauncherError, r"\(exit code -9\): it printed nothing"),
        (None, "importing", LauncherError, "no answer after 2 times 60 s"),
        (0, "[]\n1", LauncherError, "exit code 0"),
    ],
)
def test_no_answer(status: int | None, text: str, error: type[MusterError], words: str) -> None:
    with pytest.raises(error, match=words):
        asked(status, text)


def test_a_slow_first_import() -> None:
    answers = [Answer(None, ""), Answer(0, json.dumps(ANSWER))]
    assert ask_accelerate("python3", (), "", "/", {}, lambda *words: answers.pop(0)).version == "1.15.0"


def folder_with(path: Path, *names: str) -> dict[str, str]:
    path.mkdir()
    for name in names:
        (path / name).touch(0o755)
    return {"PATH": str(path), "TMPDIR": str(path)}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("ssh", "ssh-keygen"), "there is no sshd on PATH or in /usr/sbin; install openssh-server on every host"),
        (("sshd",), "there is no ssh and no ssh-keygen on PATH or in /usr/sbin; install openssh-client on every host"),
        ((), "install openssh-server and openssh-client on every host"),
    ],
)
def test_the_package_that_is_missing(
    names: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "SERVERS", (str(tmp_path / "none"),))
    with pytest.raises(LauncherError) as caught:
        find_ssh(folder_with(tmp_path / "bin", *names), "--ssh on")
    assert words.replace("/usr/sbin", str(tmp_path / "none")) in str(caught.value)


def test_what_is_found(tmp_path: Path) -> None:
    environ = folder_with(tmp_path / "bin", "ssh", "sshd", "ssh-keygen", "scp")
    found = find_ssh(environ, "--ssh on")
    assert (found.sshd, found.client) == (f"{environ['PATH']}/sshd", f"{environ['PATH']}/ssh")
    assert found.copiers == (f"{environ['PATH']}/scp",)
    assert found.folder.startswith(f"{environ['TMPDIR']}/muster-ssh-")
    assert not Path(found.folder).exists()


@pytest.mark.parametrize(
    ("shell", "words"), [("/usr/sbin/nologin", "with which nobody can log in"), (None, "has no line in /etc/passwd")]
)
def test_a_user_who_cannot_log_in(
    shell: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry(_number: int) -> pwd.struct_passwd:
        if shell is None:
            raise KeyError("getpwuid(): uid not found")
        return pwd.struct_passwd(("ml", "x", 7, 7, "", "/", shell))

    monkeypatch.setattr(pwd, "getpwuid", entry)
    with pytest.raises(LauncherError, match=words):
        find_ssh(folder_with(tmp_path / "bin", "ssh", "sshd", "ssh-keygen"), "--ssh on")
