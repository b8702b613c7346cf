"""Channels and uploads on a real S3 API, through its faults."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest
from tests.conftest import clean

from musterpoint.base.errors import FetchError
from musterpoint.core.data import mover_process
from musterpoint.core.data.mover_process import Access
from musterpoint.core.data.moves import bring, measure, send, speed
from musterpoint.core.data.places import Channel

from .s3 import CREDENTIALS, S3, Faulty

NAMES = [
    "a b", "ünï", "sub/x+y", "sub/deep/%41", "sub/a;b", "🦜", "&<>'\"", "-rf", ".hidden", "...", "trailing ",
    "tab\there", "back\\slash", "n" * 255, "e\u0301", "\u00e9", "#?=", "~", "*",
]  # fmt: skip


def tree(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


@pytest.fixture
def reach(stack: Callable[[str], Path], s3: S3, monkeypatch: pytest.MonkeyPatch) -> Access:
    """The user's Python moves the data; ours isn't asked."""
    monkeypatch.setattr(mover_process, "pythons_of", lambda access: access.pythons)
    return Access({**clean({}), **CREDENTIALS}, (str(stack("s3") / "python"),), endpoint=s3.url)


@pytest.fixture
def filled(tmp_path: Path, reach: Access, bucket: str) -> tuple[Path, str]:
    """A directory, and its copy on S3 as we send it."""
    source = tmp_path / "source"
    for number, name in enumerate(NAMES):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(os.urandom(number * 20_000))
    (source / "large").write_bytes(os.urandom(40 << 20))
    send(str(source), f"s3://{bucket}/data", reach)
    return source, f"s3://{bucket}/data"


@pytest.mark.lane("suite")
def test_there_and_back(filled: tuple[Path, str], tmp_path: Path, reach: Access) -> None:
    source, uri = filled
    for place in (uri, uri + "/"):
        found = bring(Channel("train", place), str(tmp_path / "train"), reach)
        assert tree(tmp_path / "train") == tree(source)
        assert found.size == measure(Channel("train", place), reach)
    bring(Channel("one", uri + "/sub/x+y"), str(tmp_path / "one"), reach)
    assert tree(tmp_path / "one") == {"x+y": (source / "sub/x+y").read_bytes()}


@pytest.mark.parametrize("fault", ["503", "reset", "cut"])
def test_faults_of_the_network_pass(
    filled: tuple[Path, str], tmp_path: Path, reach: Access, faulty: Faulty, fault: str
) -> None:
    source, uri = filled
    faulty.faults = ["", fault, fault, "", fault, "", "", fault]
    through = reach._replace(endpoint=faulty.url)
    bring(Channel("train", uri), str(tmp_path / "train"), through)
    assert tree(tmp_path / "train") == tree(source)


@pytest.mark.parametrize("fault", ["lost", "half"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_answer_that_is_cut_off_is_asked_for_again(
    tmp_path: Path, reach: Access, bucket: str, faulty: Faulty, fault: str, at: int
) -> None:
    """The libraries fail by whatever it lacks: the number of an upload in parts, a part's tag, an object's size."""
    source, through = tmp_path / "source", reach._replace(endpoint=faulty.url)
    source.mkdir()
    (source / "file").write_bytes(os.urandom(17 << 20))
    faulty.faults = [*[""] * at, fault]
    send(str(source), f"s3://{bucket}/data", through)
    faulty.faults = [*[""] * at, fault]
    bring(Channel("train", f"s3://{bucket}/data/"), str(tmp_path / "train"), through)
    assert not faulty.faults and tree(tmp_path / "train") == tree(source)


def test_a_store_that_throttles(tmp_path: Path, reach: Access, bucket: str, faulty: Faulty) -> None:
    """It refuses all that is asked at once, for longer than the SDK tries again: the list, then the files."""
    source, said = tmp_path / "source", list[str]()
    source.mkdir()
    for number in range(60):
        (source / f"{number:02} of many").write_bytes(os.urandom(5000))
    send(str(source), f"s3://{bucket}/data", reach)
    faulty.faults = [*["503"] * 6, "", *["503"] * 70]  # the list comes at the second try
    bring(
        Channel("train", f"s3://{bucket}/data/"),
        str(tmp_path / "train"),
        reach._replace(endpoint=faulty.url),
        say=said.append,
    )
    assert not faulty.faults and tree(tmp_path / "train") == tree(source)
    throttled = [line for line in said if "SlowDown" in line]
    assert len(throttled) >= 2, said
    assert all("it is tried again" in line and "network" not in line for line in throttled), said


def test_an_object_that_is_replaced_meanwhile(
    tmp_path: Path, reach: Access, bucket: str, s3: S3, faulty: Faulty
) -> None:
    """Each file is of one version: the transfer in parts asks for the version that was listed."""
    s3.put(bucket, "data/x", b"1" * (40 << 20))
    uri, said = f"s3://{bucket}/data/", list[str]()
    faulty.on_list = lambda: s3.put(bucket, "data/x", b"2" * (39 << 20))
    bring(Channel("train", uri), str(tmp_path / "train"), reach._replace(endpoint=faulty.url), say=said.append)
    assert (tmp_path / "train" / "x").read_bytes() == b"2" * (39 << 20)
    assert any("was replaced" in line for line in said)


@pytest.mark.lane("suite")
def test_refusals_are_told_by_name(filled: tuple[Path, str], tmp_path: Path, reach: Access, faulty: Faulty) -> None:
    _, uri = filled
    faulty.always = "403"
    with pytest.raises(FetchError, match=r"s3://\S+ was refused to .*(arn:aws|access key \.\.\.test).*AccessDenied"):
        bring(Channel("train", uri), str(tmp_path / "train"), reach._replace(endpoint=faulty.url))


def test_what_is_missing_is_told_by_name(tmp_path: Path, reach: Access, bucket: str) -> None:
    with pytest.raises(FetchError, match=f"there is nothing at s3://{bucket}/nowhere"):
        bring(Channel("train", f"s3://{bucket}/nowhere"), str(tmp_path / "train"), reach)
    with pytest.raises(FetchError, match="there is no bucket 'no-such-bucket'"):
        bring(Channel("train", "s3://no-such-bucket/x"), str(tmp_path / "train"), reach)
    bare = reach._replace(environ=clean({"AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "us-east-1"}))
    with pytest.raises(FetchError, match="there are no AWS credentials on this host"):
        bring(Channel("train", f"s3://{bucket}/x"), str(tmp_path / "train"), bare)


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:{free}", "http://nowhere.invalid"])
def test_a_network_that_is_not_there_is_told_of(tmp_path: Path, reach: Access, endpoint: str) -> None:
    """Nothing listens, or the name isn't known."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    nobody = reach._replace(endpoint=endpoint.format(free=free))
    with pytest.raises(FetchError, match=r"nothing answered within \d+ s: s3://.*has this host a network\?"):
        bring(Channel("train", "s3://bucket/x"), str(tmp_path / "train"), nobody)


KILLED = """
import os
import sys
from musterpoint.core.data import mover_process
from musterpoint.core.data.moves import bring
from musterpoint.core.data.mover_process import Access
from musterpoint.core.data.places import Channel
mover_process.pythons_of = lambda access: access.pythons
bring(Channel("train", sys.argv[1]), sys.argv[2], Access(os.environ, (sys.argv[3],)))
"""


@pytest.mark.lane("suite")
def test_a_killed_download_goes_on(
    filled: tuple[Path, str], tmp_path: Path, reach: Access, faulty: Faulty, stack: Callable[[str], Path]
) -> None:
    source, uri = filled
    faulty.faults = [""] * 6 + ["stall"]
    environ = {**reach.environ, "AWS_ENDPOINT_URL_S3": faulty.url}
    target = tmp_path / "train"
    words = [sys.executable, "-c", KILLED, uri, str(target), reach.pythons[0]]
    with subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL) as child:
        assert faulty.stalled.wait(500)
        child.send_signal(signal.SIGKILL)
    assert all(tree(source)[name] == data for name, data in tree(target).items())
    faulty.always = ""
    bring(Channel("train", uri), str(target), reach)
    assert tree(target) == tree(source)


def test_speed_is_measured_and_nothing_stays(tmp_path: Path, reach: Access, bucket: str, s3: S3) -> None:
    for place in (f"s3://{bucket}/checkpoints", str(tmp_path / "checkpoints")):
        found = speed(place, reach, checkpoints=True)
        assert found.write and found.read and not found.newest
        with pytest.raises(FetchError, match="there is nothing at"):
            speed(place, reach, writes=False)


def test_a_place_that_never_answers_is_found(reach: Access) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(FetchError, match=r"doesn't answer .* after 0\.5 s"):
            speed("s3://bucket/x", reach._replace(endpoint=endpoint), answer=0.5)


def test_plan_and_check_tell_of_data(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_bytes(bytes(3 << 20))
    (tmp_path / "train.py").write_text("")
    words = [
        "--channel",
        f"train={tmp_path}/data",
        "--job-name",
        "j",
        "--checkpoints",
        f"{tmp_path}/place",
        "--upload",
        f"{tmp_path}/file",
    ]
    (tmp_path / "file").write_text("")

    def muster(*command: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "musterpoint", *command]
        return subprocess.run(argv, cwd=tmp_path, env=clean({"COLUMNS": "1000"}), text=True, capture_output=True)

    planned = muster("plan", *words, "train.py")
    assert "1 file, 3.0 MiB" in planned.stdout and "has none yet" in planned.stdout, planned.stderr
    checked = muster("check", "--json", *words)
    found = {each["code"]: each for each in json.loads(checked.stdout)["findings"]}
    assert f"{tmp_path}/file" in found["place-unusable"]["found"] and checked.returncode == 78
    assert "MiB in the" in found["place-measured"]["found"], found


def test_a_disk_that_is_full_ends_a_fetch_and_a_later_one_goes_on(tmp_path: Path) -> None:
    """First by bytes, which is said before; then by the files that it can have, which nobody knows before."""
    source, disk = tmp_path / "source", tmp_path / "disk"
    source.mkdir()
    disk.mkdir()
    for number in range(8):
        (source / str(number)).write_bytes(os.urandom(1 << 20))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "full", str(disk)], check=True)
    try:
        with pytest.raises(FetchError, match=r"has 8,388,608 bytes .* its disk has room for"):
            bring(Channel("train", str(source)), str(disk / "train"), Access(clean({})))
        subprocess.run(["mount", "-o", "remount,size=40m,nr_inodes=10", str(disk)], check=True)
        with pytest.raises(FetchError, match="No space left on device"):
            bring(Channel("train", str(source)), str(disk / "train"), Access(clean({})))
        assert all((source / name).read_bytes() == data for name, data in tree(disk / "train").items())
        subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(disk)], check=True)
        bring(Channel("train", str(source)), str(disk / "train"), Access(clean({})))
        assert tree(disk / "train") == tree(source)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
