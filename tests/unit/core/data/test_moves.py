"""Channels brought from directories and from what fsspec reads, and directories sent there."""

from __future__ import annotations

import json
import os
import tarfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Callable, Mapping

import pytest

from musterpoint.base.errors import FetchError, UsageError
from musterpoint.core.data.mover_process import Access, Heard, run_here
from musterpoint.core.data.moves import Moved, Target, bring, measure, newest, send, speed
from musterpoint.core.data.places import Channel, Share, below, is_path, place_of, read_channel
from musterpoint.embedded.programs.transfer import open_store

ACCESS = Access({"PATH": os.environ["PATH"]})
AWKWARD = ["a b", "ünïcode", "sub/$(x)", "sub/deep/'\"", "sub/a;sharded", "%41", "new\nline", "-rf", "#x?y=1", "🦜"]


def tree(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number, name in enumerate(AWKWARD):
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * (number * 1000))
    return tmp_path / "source"


def brought(channel: Channel, directory: Path, share: Share = Share()) -> Moved:  # noqa: B008
    return bring(channel, str(directory), ACCESS, share, say=lambda text: None)


def test_a_directory(source: Path, tmp_path: Path) -> None:
    found = brought(Channel("train", str(source)), tmp_path / "train")
    assert tree(tmp_path / "train") == tree(source)
    assert found.size == measure(Channel("train", str(source)), ACCESS)
    assert found.size.files == len(AWKWARD) and found.kept.files == 0


def test_names_that_are_no_unicode(tmp_path: Path) -> None:
    source, target = os.fsencode(tmp_path / "source"), os.fsencode(tmp_path / "train")
    os.mkdir(source)
    names = {b"\xff\xfe", b"caf\xe9 \n", b"-\x01", b"." * 255}
    for name in names:
        with open(os.path.join(source, name), "wb") as file:
            file.write(name)
    first = brought(Channel("train", str(tmp_path / "source")), tmp_path / "train")
    assert set(os.listdir(target)) == names
    for name in names:
        with open(os.path.join(target, name), "rb") as file:
            assert file.read() == name
    again = brought(Channel("train", str(tmp_path / "source")), tmp_path / "train")
    assert first.kept.files == 0 and again.kept == first.size


def test_one_file(source: Path, tmp_path: Path) -> None:
    brought(Channel("train", str(source / "a b")), tmp_path / "train")
    assert tree(tmp_path / "train") == {"a b": (source / "a b").read_bytes()}


def test_by_fsspec(source: Path, tmp_path: Path) -> None:
    brought(Channel("train", f"local://{source}"), tmp_path / "train")
    assert tree(tmp_path / "train") == tree(source)
    sent = send(str(source), f"local://{tmp_path}/sent", ACCESS, say=lambda text: None)
    assert tree(tmp_path / "sent") == tree(source) and sent.size.files == len(AWKWARD)


def test_each_host_gets_its_share(source: Path, tmp_path: Path) -> None:
    channel, whole = Channel("train", str(source), sharded=True), dict[str, bytes]()
    for place in range(3):
        brought(channel, tmp_path / str(place), Share(place, 3))
        whole.update(tree(tmp_path / str(place)))
    assert whole == tree(source)
    assert sum(len(tree(tmp_path / str(place))) for place in range(3)) == len(AWKWARD)
    assert sorted(tree(tmp_path / "0")) == sorted(sorted(AWKWARD)[::3])


def test_what_is_here_stays_and_what_changed_comes_again(source: Path, tmp_path: Path) -> None:
    channel = Channel("train", str(source))
    brought(channel, tmp_path / "train")
    (source / "a b").write_text("another version")
    (source / "%41").unlink()
    (source / "new").write_text("new")
    (tmp_path / "train" / "ünïcode").write_text("spoilt")
    (tmp_path / "train" / "mine").write_text("the user's")
    found = brought(channel, tmp_path / "train")
    assert tree(tmp_path / "train") == {**tree(source), "mine": b"the user's"}
    assert found.kept.files == len(AWKWARD) - 3


def test_half_a_file_of_a_killed_run_is_no_file(source: Path, tmp_path: Path) -> None:
    part = tmp_path / ".muster-train" / "parts" / "0"
    part.parent.mkdir(parents=True)
    part.write_text("half")
    (tmp_path / ".muster-train" / "record").write_text('["a b", "tag", 4\n["a b", 1, 2')
    brought(Channel("train", str(source)), tmp_path / "train")
    assert tree(tmp_path / "train") == tree(source) and not part.exists()


def test_a_manifest(source: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(f'[{{"prefix": "{source}/"}}, "a b", "sub/$(x)"]')
    brought(Channel("train", str(tmp_path / "list"), manifest=True), tmp_path / "train")
    assert sorted(tree(tmp_path / "train")) == ["a b", "sub/$(x)"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "no manifest"),
        ('["a"]', "no manifest"),
        ("x", "no manifest"),
        ('[{"prefix": "/nowhere"}, "x"]', "names 'x'"),
    ],
)
def test_what_is_no_manifest(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "list").write_text(content)
    with pytest.raises(FetchError, match=says):
        brought(Channel("train", str(tmp_path / "list"), manifest=True), tmp_path / "train")


def test_nothing_is_there(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"channel train: there is nothing at .*/nowhere: expected a file, or files"):
        brought(Channel("train", str(tmp_path / "nowhere")), tmp_path / "train")


def test_a_library_is_missing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['boto3'] = sys.modules['fsspec'] = None\n")
    access = ACCESS._replace(environ={**ACCESS.environ, "PYTHONPATH": str(tmp_path)})
    for uri, library in (("s3://b/p", "boto3"), ("memory://b/p", "fsspec")):
        with pytest.raises(FetchError, match=rf"{library}.*, which no Python here has: .*python.* \(no {library}\)"):
            bring(Channel("train", uri), str(tmp_path / "train"), access)
    with pytest.raises(FetchError, match="nosuch"):
        brought(Channel("train", "nosuch://b/p"), tmp_path / "train")


def test_a_disk_that_is_too_small(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with open(tmp_path / "source" / "huge", "wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(FetchError, match=r"has 8,796,093,022,208 bytes .* room for"):
        brought(Channel("train", str(tmp_path / "source")), tmp_path / "train")
    assert tree(tmp_path / "train") == {}


def test_an_archive(source: Path, tmp_path: Path) -> None:
    sent = send(str(source), str(tmp_path / "sent"), ACCESS, "model.tar.gz", say=lambda text: None)
    assert sent.size.files == 1
    with tarfile.open(tmp_path / "sent" / "model.tar.gz") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    assert tree(tmp_path / "unpacked") == tree(source)


@pytest.mark.parametrize("deaths", [1, 2])
def test_what_sends_is_started_again_once_when_it_was_killed(source: Path, tmp_path: Path, deaths: int) -> None:
    said: list[str] = []
    started: list[int] = []

    def killed_first(argv: tuple[str, ...], environ: Mapping[str, str], on_line: Callable[[str], None]) -> int:
        started.append(len(started))
        return -9 if len(started) <= deaths else run_here(argv, environ, on_line)

    to = tmp_path / "to"
    with nullcontext() if deaths == 1 else pytest.raises(FetchError, match="the mover ended with code -9"):
        send(str(source), str(to), ACCESS, say=said.append, run=killed_first)
    assert said[0] == f"upload of {source}: the mover ended with code -9; it is started again"
    assert len(started) == 2 and to.exists() == (deaths == 1)


def test_speed(tmp_path: Path) -> None:
    found = speed(str(tmp_path), ACCESS)
    assert found.write and found.read and not tree(tmp_path)
    with pytest.raises(FetchError):
        speed("/proc/nowhere", ACCESS)


def test_progress_is_told_every_ten_seconds() -> None:
    said: list[str] = []
    heard = Heard("train", said.append)
    for seconds in (1, 12, 13, 23):
        heard.line(f'{{"progress": [{seconds << 20}, {24 << 20}, {seconds}, 24, {seconds}]}}')
    assert said == [
        "train: 12.0 MiB of 24.0 MiB, 12 of 24 files after 12 s (1.0 MiB/s, 12 s left)",
        "train: 23.0 MiB of 24.0 MiB, 23 of 24 files after 23 s (1.0 MiB/s, 1 s left)",
    ]


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_one_file_is_looked_up_by_its_own_name(scheme: str, tmp_path: Path) -> None:
    """Before it is tried again."""
    (tmp_path / "one").write_bytes(b"data")
    store = open_store(f"{scheme}{tmp_path}/one", {})
    assert [store.item(item.name) for item in store.items()] == list(store.items())
    assert store.item("one") is not None and open_store(f"{scheme}{tmp_path}/none", {}).item("one") is None


@pytest.mark.parametrize(
    "said", [{}, {"number": 7, "job": "j", "hosts": 2, "names": ["step-7"], "files": 3, "bytes": 9}]
)
def test_the_newest_checkpoint_is_what_the_place_has(said: dict[str, Any]) -> None:
    def run(_argv: tuple[str, ...], _environ: Mapping[str, str], on_line: Callable[[str], None]) -> int:
        on_line(json.dumps({"done": said}))
        return 0

    found = newest(Target("/nowhere", "j"), ACCESS, run)
    assert (None if found is None else (found.number, found.names)) == ((7, ("step-7",)) if said else None)


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
