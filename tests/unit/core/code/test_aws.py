"""What is asked of AWS for the user's code, and how answers and failures come back, with programs made for the test."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from musterpoint.base.errors import FetchError, StoppedEarly
from musterpoint.core.code.aws import download, package_index
from musterpoint.core.data import mover
from musterpoint.core.data.mover import endpoint_of, region_of
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
    monkeypatch.setattr(mover, "sys", SimpleNamespace(executable=""))
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
