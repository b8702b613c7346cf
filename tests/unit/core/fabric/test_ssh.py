"""What of OpenSSH this host lacks, by the package that has it; and users as whom nobody can log in."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from musterpoint.base.errors import LauncherError
from musterpoint.core.fabric import ssh
from musterpoint.core.fabric.ssh import find_ssh


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
