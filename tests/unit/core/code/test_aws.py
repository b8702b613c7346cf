"""What is asked of AWS for the user's code, and how answers and failures come back, with programs made for the test."""

from __future__ import annotations

import json
import netrc
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from musterpoint.base.errors import FetchError, StoppedEarly
from musterpoint.core.code.aws import download, package_index
from musterpoint.core.code.index_passwords import Credentials
from musterpoint.core.data import mover_process
from musterpoint.core.data.mover_process import endpoint_of, region_of
from musterpoint.embedded.programs import registry

from .conftest import Bench

ARN = "arn:aws:codeartifact:eu-west-1:111122223333:repository/domain/repo"
PROGRAM = """
import json, os, sys
def tell(**facts):
    print(json.dumps(facts), flush=True)
def main(request):
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the program's ``main``, in the place of every program of ours."""
    lines: list[str] = []

    def text(name: str) -> str:
        return PROGRAM + "".join(f"    {line}\n" for line in lines)

    monkeypatch.setattr(registry, "text_of", text)
    monkeypatch.setattr(mover_process, "sys", SimpleNamespace(executable=""))
    return lines


@pytest.mark.parametrize(
    ("environ", "region"),
    [
        ({}, "job"),
        ({"AWS_REGION": "a", "AWS_DEFAULT_REGION": "b"}, "a"),
        ({"SAGEMAKER_REGION": "s", "AWS_DEFAULT_REGION": "b"}, "s"),
        ({"SM_REGION": "m"}, "m"),
        ({"AWS_REGION": "", "AWS_DEFAULT_REGION": "b"}, "b"),
    ],
)
def test_regions(environ: dict[str, str], region: str) -> None:
    assert region_of("job", environ) == region


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({}, ""),
        ({"AWS_ENDPOINT_URL": "c", "S3_ENDPOINT_URL": "b", "AWS_ENDPOINT_URL_S3": "a"}, "a"),
        ({"AWS_ENDPOINT_URL": "c", "S3_ENDPOINT_URL": "b"}, "b"),
        ({"AWS_ENDPOINT_URL": "c"}, "c"),
        ({"AWS_ENDPOINT_URL_S3": "a", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "TRUE"}, ""),
    ],
)
def test_endpoints(environ: dict[str, str], endpoint: str) -> None:
    assert endpoint_of(environ) == endpoint


def test_a_download_is_asked_for_and_its_progress_told(
    program: list[str], bench: Bench, interpreter: str, tmp_path: Path
) -> None:
    program += [
        f"open({str(tmp_path / 'request')!r}, 'w').write(json.dumps(request))",
        "print('a warning of boto3', file=sys.stderr, flush=True)",
        "for seconds in (5, 11, 12, 25): tell(progress=[seconds << 20, 100 << 20, 0, 1, seconds])",
        "tell(note='it broke; it is tried again')",
        "tell(done={})",
    ]
    bench.environ["AWS_ENDPOINT_URL"] = "http://here"
    uri, folder = "s3://bucket/a/b.tar.gz", str(tmp_path / "fetched")
    assert download(uri, folder, "eu-west-1", bench.environ, interpreter, bench.tools) == f"{folder}/b.tar.gz"
    asked = json.loads((tmp_path / "request").read_text())
    assert (asked["action"], asked["uri"], asked["names"]) == ("fetch", "s3://bucket/a/", ["b.tar.gz"])
    assert (asked["directory"], asked["access"]) == (folder, {"region": "eu-west-1", "endpoint": "http://here"})
    assert bench.said == [
        f"fetching {uri}: 11.0 MiB of 100.0 MiB, 0 of 1 files after 11 s (1.0 MiB/s, 89 s left)",
        f"fetching {uri}: 25.0 MiB of 100.0 MiB, 0 of 1 files after 25 s (1.0 MiB/s, 75 s left)",
        f"fetching {uri}: it broke; it is tried again",
    ]
    assert bench.shown == ["a warning of boto3"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tell(error='there is no such bucket'); sys.exit(1)", "fetching s3://b/k: there is no such bucket"),
        ("print('words'); sys.exit(1)", "fetching s3://b/k: words"),
        ("sys.exit(9)", "fetching s3://b/k: the mover ended with code 9"),
        ("tell(lacks='boto3'); sys.exit(1)", "this takes boto3, which no Python here has: PYTHON (no boto3)"),
    ],
)
def test_failures(line: str, says: str, program: list[str], bench: Bench, interpreter: str) -> None:
    program.append(line)
    with pytest.raises(FetchError) as error:
        download("s3://b/k", "/none", "", bench.environ, interpreter, bench.tools)
    assert says.replace("PYTHON", interpreter) in str(error.value)


def test_a_python_that_cannot_be_started_is_passed_over(program: list[str], bench: Bench) -> None:
    with pytest.raises(FetchError, match=r"/none/python \(No such file or directory\); pip install it in the image"):
        download("s3://b/k", "/none", "", bench.environ, "/none/python", bench.tools)


@pytest.mark.parametrize("uri", ["s3://", "s3://bucket", "s3://bucket/", "s3:///key", "s3://bucket/folder/"])
def test_uris_that_name_no_object(uri: str, bench: Bench) -> None:
    with pytest.raises(FetchError, match="names no object: expected s3://BUCKET/KEY"):
        download(uri, "/none", "", {}, "", bench.tools)


def test_a_stop_is_no_failure(program: list[str], bench: Bench, interpreter: str) -> None:
    program.append("tell(note='reset'); sys.stdin.read()")
    bench.tools.say = lambda text: bench.tools.stop(15)
    with pytest.raises(StoppedEarly):
        download("s3://b/k", "/none", "", bench.environ, interpreter, bench.tools)


def test_an_index_and_its_token(program: list[str], bench: Bench, interpreter: str) -> None:
    program.append("del request['access']; url = 'https://h/pypi/repo/'")
    program.append("tell(done={'token': ' '.join(sorted(request.values())), 'url': url})")
    index = package_index(ARN, bench.environ, interpreter, bench.tools)
    assert index == ("https://h/pypi/repo/simple/", f"111122223333 {ARN} domain eu-west-1 repo")
    assert bench.said + bench.shown == []


@pytest.mark.parametrize("arn", ["", "x", "arn:aws:s3:::b", ARN[:-5], ARN.replace("repository", "domain")])
def test_arns_of_another_form(arn: str, bench: Bench) -> None:
    with pytest.raises(FetchError, match="expected arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY"):
        package_index(arn, {}, "", bench.tools)


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
