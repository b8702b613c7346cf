from __future__ import annotations

import netrc
import stat
from pathlib import Path

from musterpoint.code.credentials import Credentials

URL = "https://domain-111122223333.d.codeartifact.eu-west-1.amazonaws.com/pypi/repo/simple/"


def test_the_password_stands_in_a_file_alone(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("machine elsewhere login me password mine\n")
    variables = Credentials(str(tmp_path)).give(URL, "aws", "t0ken/+=", {"NETRC": str(own)})
    assert variables == {"PIP_INDEX_URL": URL, "UV_DEFAULT_INDEX": URL, "NETRC": str(tmp_path / "netrc")}
    assert stat.S_IMODE((tmp_path / "netrc").stat().st_mode) == 0o600
    read = netrc.netrc(variables["NETRC"])
    host = "domain-111122223333.d.codeartifact.eu-west-1.amazonaws.com"
    found = {name: read.authenticators(name) or () for name in (host, "elsewhere")}
    assert {name: (words[0], words[2]) for name, words in found.items()} == {
        host: ("aws", "t0ken/+="), "elsewhere": ("me", "mine"),
    }  # fmt: skip


def test_the_home_directory_has_one_or_not(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine home login me password mine\n")
    (tmp_path / "private").mkdir()
    credentials = Credentials(str(tmp_path / "private"))
    read = netrc.netrc(credentials.give(URL, "aws", "token", {"HOME": str(tmp_path)})["NETRC"])
    assert read.authenticators("home") is not None
    read = netrc.netrc(credentials.give(URL, "aws", "token", {})["NETRC"])
    assert read.authenticators("home") is None


def test_it_is_hidden_in_every_spelling(tmp_path: Path) -> None:
    credentials = Credentials(str(tmp_path))
    assert credentials.hide("a t0ken/+= b") == "a t0ken/+= b"
    credentials.give(URL, "aws", "t0ken/+=", {})
    assert credentials.hide("https://aws:t0ken%2F%2B%3D@host t0ken/+=") == "https://aws:***@host ***"
