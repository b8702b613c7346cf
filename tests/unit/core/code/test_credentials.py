from __future__ import annotations

import netrc
import stat
from pathlib import Path

from musterpoint.core.code.credentials import Credentials

URL = "https://domain-111122223333.d.codeartifact.eu-west-1.amazonaws.com/pypi/repo/simple/"


def entries(path: str | Path, *hosts: str) -> list[tuple[str, str] | None]:
    """The user and the password that a file has for each of ``hosts``."""
    found = [netrc.netrc(str(path)).authenticators(host) for host in hosts]
    return [each and (each[0], each[2]) for each in found]


def test_the_password_stands_in_a_file_alone(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("machine elsewhere login me password mine\n")
    variables = Credentials(str(tmp_path)).give(URL, "aws", "t0ken/+=", {"NETRC": str(own)})
    assert variables == {"PIP_INDEX_URL": URL, "UV_DEFAULT_INDEX": URL, "NETRC": str(tmp_path / "netrc")}
    assert stat.S_IMODE((tmp_path / "netrc").stat().st_mode) == 0o600
    host = "domain-111122223333.d.codeartifact.eu-west-1.amazonaws.com"
    assert entries(variables["NETRC"], host, "elsewhere") == [("aws", "t0ken/+="), ("me", "mine")]


def test_the_home_directory_has_one_or_not(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine home login me password mine\n")
    (tmp_path / "private").mkdir()
    folder = str(tmp_path / "private")
    for environ, found in (({"HOME": str(tmp_path)}, ("me", "mine")), ({}, None)):
        assert entries(Credentials(folder).give(URL, "aws", "token", environ)["NETRC"], "home") == [found]


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
    assert entries(taken["NETRC"], "index.example") == [("me", "p@ssword")]
    assert credentials.hide("p@ssword p%40ssword") == "*** ***"
    credentials.give(URL, "aws", "token", {**environ, **taken})
    assert entries(taken["NETRC"], "index.example") == [("me", "p@ssword")]


def test_what_netrc_can_not_say_stays(tmp_path: Path) -> None:
    for url in ("https://t0ken@a.example/", "https://u:a%20b@a.example/", "https://a.example/", "/wheels@x:y"):
        assert Credentials(str(tmp_path)).take_from({"PIP_INDEX_URL": url}) == {}


def test_an_index_that_the_job_names_has_its_own_password(tmp_path: Path) -> None:
    """A stale entry of the user's for the same host is behind it."""
    (tmp_path / ".netrc").write_text("machine index.example login old password stale")
    credentials = Credentials(tmp_path)
    url = "https://me:fresh@index.example/simple"
    taken = credentials.take_from({"PIP_INDEX_URL": url, "HOME": str(tmp_path)})
    assert entries(taken["NETRC"], "index.example") == [("me", "fresh")]
