"""What is said on the command line of a channel, as a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.data.places import Channel, below, is_path, place_of, read_channel


@pytest.mark.parametrize(
    ("text", "channel"),
    [
        ("train=s3://b/p/", Channel("train", "s3://b/p/")),
        ("train=s3://b/p;sharded", Channel("train", "s3://b/p", sharded=True)),
        ("t=s3://b/list.json;manifest;sharded", Channel("t", "s3://b/list.json", sharded=True, manifest=True)),
        ("t=data", Channel("t", "/here/data")),
        ("t=/data;sharded", Channel("t", "/data", sharded=True)),
        ("t=file:///data/x", Channel("t", "/data/x")),
        ("t=s3://b/a=b", Channel("t", "s3://b/a=b")),
    ],
)
def test_channels(text: str, channel: Channel) -> None:
    assert read_channel(text, "/here") == channel


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train", "expected NAME=URI"),
        ("=s3://b/p", "expected NAME=URI"),
        ("..=s3://b/p", "expected NAME=URI"),
        ("a/b=s3://b/p", "expected NAME=URI"),
        ("t=", "expected NAME=URI"),
        ("t=s3://", "expected s3://BUCKET/PREFIX"),
        ("t=s3://b/p;shard", "did you mean sharded"),
        ("t=gs://b/p;fastfile", ";fastfile is gone: mount it before the job"),
        ("t=s3://b/p;pipe;recordio", ";pipe is gone: mount it before the job"),
    ],
)
def test_what_is_no_channel(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_channel(text, "/here")


def test_a_path_with_semicolons_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a;sharded").mkdir()
    assert read_channel("t=a;sharded", str(tmp_path)) == Channel("t", str(tmp_path / "a;sharded"))
    assert read_channel("t=b;sharded", str(tmp_path)) == Channel("t", str(tmp_path / "b"), sharded=True)


def test_places() -> None:
    assert place_of("file://x/y", "/", "--upload") == "/x/y"
    assert is_path("/x") and is_path("x") and not is_path("memory://x")
    assert below("s3://b/p/", "x") == below("s3://b/p", "x") == "s3://b/p/x"
