from __future__ import annotations

import netrc
import stat
from pathlib import Path

from musterpoint.core.code.credentials import Credentials

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
    folder = str(tmp_path / "private")
    read = netrc.netrc(Credentials(folder).give(URL, "aws", "token", {"HOME": str(tmp_path)})["NETRC"])
    assert read.authenticators("home") is not None
    read = netrc.netrc(Credentials(folder).give(URL, "aws", "token", {})["NETRC"])
    assert read.authenticators("home") is None


def test_it_is_hidden_in_every_spelling(tmp_path: Path) -> None:
    credentials = Credentials(str(tmp_path))
    assert credentials.hide("a t0ken/+= b") == "a t0ken/+= b"
    credentials.give(URL, "aws", "t0ken/+=", {})
    assert credentials.hide("https://aws:t0ken%2F%2B%3D@host t0ken/+=") == "https://aws:***@host ***"


def test_passwords_of_index_urls_move_to_the_file(tmp_path: Path) -> None:
    credentials = Credentials(str(tmp_path))
    environ = {
        "PIP_INDEX_URL": "https://me:p%40ssword@index.example:8443/simple/", "HOME": str(tmp_path),
        "PIP_EXTRA_INDEX_URL": "https://two:one-1@b.example/x https://two:other@b.example/y https://plain.example/",
    }  # fmt: skip
    taken = credentials.take_from(environ)
    assert taken == {
        "PIP_INDEX_URL": "https://index.example:8443/simple/", "PIP_EXTRA_INDEX_URL": environ["PIP_EXTRA_INDEX_URL"],
        "NETRC": str(tmp_path / "netrc"),
    }  # fmt: skip
    assert (netrc.netrc(taken["NETRC"]).authenticators("index.example") or ())[::2] == ("me", "p@ssword")
    assert credentials.hide("p@ssword p%40ssword") == "*** ***"
    credentials.give(URL, "aws", "token", {**environ, **taken})
    assert netrc.netrc(taken["NETRC"]).authenticators("index.example") is not None


def test_what_netrc_can_not_say_stays(tmp_path: Path) -> None:
    for url in ("https://t0ken@a.example/", "https://u:a%20b@a.example/", "https://a.example/", "/wheels@x:y"):
        assert Credentials(str(tmp_path)).take_from({"PIP_INDEX_URL": url}) == {}


def test_an_index_that_the_job_names_has_its_own_password(tmp_path: Path) -> None:
    """A stale entry of the user's for the same host is behind it."""
    (tmp_path / ".netrc").write_text("machine index.example login old password stale")
    credentials = Credentials(tmp_path)
    url = "https://me:fresh@index.example/simple"
    taken = credentials.take_from({"PIP_INDEX_URL": url, "HOME": str(tmp_path)})
    assert (netrc.netrc(taken["NETRC"]).authenticators("index.example") or ())[::2] == ("me", "fresh")
