from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import FetchError
from musterpoint.core.code.source import Source, find_source, has_route, is_isolated
from musterpoint.core.job.model import EntryPoint, Job, Paths


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "data" / "code").mkdir(parents=True)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text("")
    return tmp_path


def job(base: Path, source: str = "", program: str = "train.py", **training_job: Any) -> Job:
    return Job(
        "sagemaker", "j", ("a",), "a", ("a",), EntryPoint(program, source.replace("BASE", str(base))),
        paths=Paths(code=str(base / "code"), input_data=str(base / "data")),
        files={"trainingjobconfig.json": training_job} if training_job else {},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "kind", "place"),
    [
        ("s3://bucket/key/sourcedir.tar.gz", "s3", "s3://bucket/key/sourcedir.tar.gz"),
        ("BASE/source", "directory", "BASE/source"),
        ("BASE/source/train.py", "file", "BASE/source/train.py"),
        ("file://BASE/source", "directory", "BASE/source"),
        ("file://localhostBASE/source", "directory", "BASE/source"),
        ("file://BASE/sour%63e/train.py", "file", "BASE/source/train.py"),
    ],
)
def test_what_the_job_names(source: str, kind: str, place: str, base: Path) -> None:
    assert find_source(job(base, source)) == Source(kind, place.replace("BASE", str(base)))


def test_the_channel_of_the_sdk(base: Path) -> None:
    assert find_source(job(base)) is None
    (base / "data" / "code" / "images.bin").write_text("")
    assert find_source(job(base)) is None, "a channel of the user's own may have that name"
    (base / "data" / "code" / "train.py").write_text("")
    assert find_source(job(base)) == Source("directory", f"{base}/data/code")
    assert find_source(job(base, "BASE/code")) == Source("directory", f"{base}/data/code")
    assert find_source(job(base, program=f"{base}/source/train.py")) is None
    (base / "data" / "code" / "sourcedir.tar.gz").write_text("")
    assert find_source(job(base)) == Source("file", f"{base}/data/code/sourcedir.tar.gz")
    assert find_source(job(base)._replace(paths=Paths())) is None


def test_without_a_network_the_channel_goes_before_s3(base: Path) -> None:
    (base / "data" / "code" / "sourcedir.tar.gz").write_text("")
    assert find_source(job(base, "s3://b/k")) == Source("s3", "s3://b/k")
    isolated = job(base, "s3://b/k", EnableNetworkIsolation=True)
    assert find_source(isolated) == Source("file", f"{base}/data/code/sourcedir.tar.gz")
    assert not is_isolated(job(base, EnableNetworkIsolation="yes"))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("BASE/none", "the job's source BASE/none isn't on this host; BASE/code has no code in it either"),
        ("https://example.com/x", "is of no known kind: expected s3://BUCKET/KEY, a directory"),
        ("file://elsewhere/x", "is a file of another machine; expected file:///PATH"),
    ],
)
def test_what_cannot_be(source: str, says: str, base: Path) -> None:
    with pytest.raises(FetchError) as error:
        find_source(job(base, source))
    assert says.replace("BASE", str(base)) in str(error.value)


HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
ETH = "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
SIX_LO = f"{1:032} 80 {0:032} 00 {0:032} 00000000 00000002 0 80200001       lo\n"
SIX_ETH = SIX_LO.replace("      lo", "    eth0")


@pytest.mark.parametrize(
    ("four", "six", "has"),
    [
        (HEAD + ETH, SIX_LO, True),
        (HEAD, SIX_LO, False),
        (HEAD, None, False),
        ("", "", False),
        (HEAD, SIX_LO + SIX_ETH, True),
        (None, None, True),
    ],
)
def test_routes(four: str | None, six: str | None, has: bool, tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    for name, text in (("route", four), ("ipv6_route", six)):
        if text is not None:
            (tmp_path / "net" / name).write_text(text)
    assert has_route(str(tmp_path)) is has
