"""What is asked of AWS and how answers and failures come back; the reader runs with a boto3 made for the test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from musterpoint.base.errors import FetchError, StoppedEarly
from musterpoint.core.code import aws
from musterpoint.core.code.aws import download, endpoint_of, package_index, region_of
from musterpoint.embedded.programs.registry import text_of

from .conftest import Bench

ARN = "arn:aws:codeartifact:eu-west-1:111122223333:repository/domain/repo"
READER = """
import json, os, sys
request = json.loads(os.environ["MUSTER_AWS_REQUEST"])
def tell(**facts):
    print(json.dumps(facts), flush=True)
"""


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of the reader, in parts."""
    parts = [READER]
    monkeypatch.setattr(aws, "text_of", lambda name: "".join(parts))
    monkeypatch.setattr(aws, "sys", SimpleNamespace(executable=""))
    return parts


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
    reader: list[str], bench: Bench, interpreter: str, tmp_path: Path
) -> None:
    reader.append(
        "open(request['path'], 'w').write(json.dumps(request))\n"
        "print('a warning of boto3', file=sys.stderr, flush=True)\n"
        "for seconds in (5, 11, 12, 25):\n    tell(at=seconds << 20, size=100 << 20, seconds=seconds)\n"
        "tell(retry='it broke', at=1234567)\ntell(at=1, size=5, seconds=60)\ntell(done=True, size=1)\n"
    )
    path = str(tmp_path / "object")
    bench.environ["AWS_ENDPOINT_URL"] = "http://here"
    download("s3://bucket/a/b.tar.gz", path, "eu-west-1", bench.environ, interpreter, bench.tools)
    assert (tmp_path / "object").read_text() == (
        '{"action": "get", "bucket": "bucket", "key": "a/b.tar.gz", "path": "' + path + '", '
        '"region": "eu-west-1", "endpoint": "http://here", "no_boto3": 3}'
    )
    assert bench.said == [
        "s3://bucket/a/b.tar.gz: 11 of 100 MiB after 11 s", "s3://bucket/a/b.tar.gz: 25 of 100 MiB after 25 s",
        "s3://bucket/a/b.tar.gz: it broke; going on at byte 1,234,567",
    ]  # fmt: skip
    assert bench.shown == ["a warning of boto3"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("tell(error='there is no such bucket'); sys.exit(1)", "can't fetch s3://b/k: there is no such bucket"),
        ("print('words'); sys.exit(1)", "can't fetch s3://b/k: words"),
        ("sys.exit(9)", "can't fetch s3://b/k: the reader ended with code 9"),
        ("tell(error='No module named boto3'); sys.exit(3)", "this takes boto3, which no Python here has: PYTHON (No"),
    ],
)  # fmt: skip
def test_failures(script: str, says: str, reader: list[str], bench: Bench, interpreter: str) -> None:
    reader.append(script)
    with pytest.raises(FetchError) as error:
        download("s3://b/k", "/dev/null", "", bench.environ, interpreter, bench.tools)
    assert says.replace("PYTHON", interpreter) in str(error.value)


def test_a_python_that_cannot_be_started_is_passed_over(reader: list[str], bench: Bench) -> None:
    with pytest.raises(FetchError, match=r"/none/python \(No such file or directory\); pip install boto3"):
        download("s3://b/k", "/dev/null", "", bench.environ, "/none/python", bench.tools)


@pytest.mark.parametrize("uri", ["s3://", "s3://bucket", "s3://bucket/", "s3:///key"])
def test_uris_that_name_no_object(uri: str, bench: Bench) -> None:
    with pytest.raises(FetchError, match="names no object: expected s3://BUCKET/KEY"):
        download(uri, "/dev/null", "", {}, "", bench.tools)


def test_a_stop_is_no_failure(reader: list[str], bench: Bench, interpreter: str) -> None:
    reader.append("import time; tell(retry='reset', at=1); time.sleep(60)")
    bench.tools.say = lambda text: bench.tools.stop(15)
    with pytest.raises(StoppedEarly):
        download("s3://b/k", "/dev/null", "", bench.environ, interpreter, bench.tools)


def test_an_index_and_its_token(reader: list[str], bench: Bench, interpreter: str) -> None:
    reader.append("tell(done=True, token=' '.join(sorted(map(str, request.values()))), url='https://h/pypi/repo/')")
    index = package_index(ARN, bench.environ, interpreter, bench.tools)
    assert index == ("https://h/pypi/repo/simple/", " 111122223333 3 domain eu-west-1 index repo")
    assert bench.said + bench.shown == []


@pytest.mark.parametrize("arn", ["", "x", "arn:aws:s3:::b", ARN[:-5], ARN.replace("repository", "domain")])
def test_arns_of_another_form(arn: str, bench: Bench) -> None:
    with pytest.raises(FetchError, match="expected arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY"):
        package_index(arn, {}, "", bench.tools)


def test_the_reader_comes_from_the_package() -> None:
    assert "def main(request" in text_of("aws_reader")
    assert len(text_of("aws_reader").encode()) < 64 * 1024, "it has to fit into a pipe"
