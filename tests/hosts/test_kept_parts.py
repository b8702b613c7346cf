"""What hosts tell each other of a checkpoint outlives the programs that keep it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any, Iterator

import pytest

from fuzzers.checkpoints_of_hosts import Host, links_of_two
from musterpoint.core.data.mover_process import Access
from musterpoint.core.data.moves import Target, restore
from musterpoint.core.data.places import Share


@contextlib.contextmanager
def keeping(folder: Path) -> Iterator[list[Host]]:
    """Two hosts that keep checkpoints."""
    links, found = links_of_two(), list[Host]()
    try:
        for place in (0, 1):
            (folder / f"host{place}").mkdir(exist_ok=True)
            asked = {"place": place, "directory": str(folder / f"host{place}"), "uri": str(folder / "place")}
            found.append(Host({**asked, "operations": 0, "below": "", "keep": 3}, *links[place]))
            found[place].tell("begin")
            assert found[place].hear("begin")
        yield found
    finally:
        for host in found:
            host.kill()
            host.end()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    with keeping(tmp_path) as found:
        yield found


def save(folder: Path, place: int, mark: str = "") -> None:
    """One host's part of a checkpoint: renamed, or under its last name."""
    part = folder / f"host{place}" / ("checkpoint-1" if mark else "new-1.tmp")
    part.mkdir()
    (part / (f"rng_state_{place}.pth" if mark else f"state-{place}")).write_text(f"of {place}")
    if not mark:
        for path in (*part.iterdir(), part):  # written before it is renamed, whatever the clock's steps are
            os.utime(path, (1e9, 1e9))
        part.rename(part.with_name("checkpoint-1"))
    elif place == 0:
        (part / mark).write_text("{}")


def places(folder: Path) -> set[int]:
    """Whose files are in the newest manifest."""
    newest = max((folder / "place" / "manifests").iterdir())
    return {entry[4] for part in json.loads(newest.read_text())["parts"] for entry in part["files"]}


def finish(hosts: list[Host], how: str = "finish clean") -> None:
    for host in hosts:
        host.tell(how)
    for host in hosts:
        assert host.hear("finish")


def test_a_part_is_told_again_to_a_keeper_that_is_started_anew(hosts: list[Host], tmp_path: Path) -> None:
    save(tmp_path, 1)
    assert hosts[0].hear("PartKept")
    hosts[0].tell("kill")
    assert hosts[0].hear("kill")
    save(tmp_path, 0)
    finish(hosts)
    assert hosts[0].kept["newest"] == "checkpoint-1" and places(tmp_path) == {0, 1}, hosts[0].said


@pytest.mark.lane("suite")
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "not-killed"])
def test_the_first_hosts_mark_is_waited_for_at_the_end(hosts: list[Host], tmp_path: Path, killed: bool) -> None:
    """The other host's part is whole by this mark only, and its ranks have ended before."""
    save(tmp_path, 1, mark="trainer_state.json")
    hosts[1].tell("finish clean")
    save(tmp_path, 0, mark="trainer_state.json")
    if killed:
        assert hosts[1].hear("MarkedWhole")
        hosts[1].tell("kill")
    finish(hosts[:1])
    assert hosts[1].hear("finish")
    assert hosts[0].kept["newest"] == "checkpoint-1" and places(tmp_path) == {0, 1}, hosts[0].said


def test_what_an_attempt_left_and_what_the_next_one_saves_make_no_checkpoint(hosts: list[Host], tmp_path: Path) -> None:
    """Also for a keeper that is started anew in the next attempt."""
    save(tmp_path, 0)
    assert hosts[0].hear("checkpoint-uploaded")
    for host in hosts:
        host.tell("attempt 1")
    for host in hosts:
        assert host.hear("attempt")
    hosts[0].tell("kill")
    assert hosts[0].hear("kill")
    save(tmp_path, 1)
    finish(hosts)
    assert not hosts[0].kept["newest"], hosts[0].said


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "not-killed"])
def test_a_mark_counts_that_comes_in_the_next_attempt(hosts: list[Host], tmp_path: Path, killed: bool) -> None:
    """The other host has begun the next attempt, which saves nothing, when the first one sees what is left."""
    save(tmp_path, 1, mark="trainer_state.json")
    hosts[1].tell("attempt 1")
    assert hosts[1].hear("attempt")
    save(tmp_path, 0, mark="trainer_state.json")
    hosts[0].tell("attempt 1")
    assert hosts[0].hear("attempt")
    if killed:
        hosts[1].tell("kill")
        assert hosts[1].hear("kill")
    finish(hosts)
    assert hosts[0].kept["newest"] == "checkpoint-1" and places(tmp_path) == {0, 1}, hosts[0].said


def test_a_mark_doesnt_say_which_hosts_have_parts(hosts: list[Host], tmp_path: Path) -> None:
    """smdistributed's names its folder only, in which each host has its own ranks' files."""
    for place in (1, 0):
        (tmp_path / f"host{place}" / "tag-1_partial").mkdir()
        (tmp_path / f"host{place}" / "tag-1_partial" / f"model_{place}").write_text(f"of {place}")
    (tmp_path / "host0" / "newest").write_text("tag-1_partial")
    finish(hosts)
    assert hosts[0].kept["newest"] == "tag-1_partial" and places(tmp_path) == {0, 1}, hosts[0].said


def test_what_the_last_attempt_saved_is_kept_though_another_has_a_higher_number(
    hosts: list[Host], tmp_path: Path
) -> None:
    """What the one before left is known to be whole at the end only: nothing is being written any more."""
    for attempt, step in enumerate((5, 2)):
        for place, host in enumerate(hosts):
            (tmp_path / f"host{place}" / f"checkpoint-{step}").mkdir()
            (tmp_path / f"host{place}" / f"checkpoint-{step}" / "state").write_text(f"of {place}")
            if attempt == 0:
                host.tell("attempt 1")
                assert host.hear("attempt")
    finish(hosts)
    assert hosts[0].kept["newest"] == "checkpoint-2" and places(tmp_path) == {0, 1}, hosts[0].said


@pytest.mark.parametrize("completed", [True, False], ids=["completed", "half"])
def test_the_first_hosts_mark_makes_no_half_file_whole(hosts: list[Host], tmp_path: Path, completed: bool) -> None:
    """The other host's rank still writes when the first one marks the checkpoint; it may be killed before its end."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        file.writestr("state", "x" * 1000)
    path = tmp_path / "host1" / "checkpoint-1" / "rng_state_1.pth"
    path.parent.mkdir()
    path.write_bytes(whole.getvalue()[:-30])
    save(tmp_path, 0, mark="trainer_state.json")
    assert hosts[1].hear("MarkedWhole")
    if completed:
        path.write_bytes(whole.getvalue())
    finish(hosts)
    assert hosts[0].kept["newest"] == ("checkpoint-1" if completed else ""), hosts[0].said


@pytest.mark.parametrize(("how", "kept"), [("finish", ""), ("finish stopped", "checkpoint-1")])
def test_a_host_without_a_part_takes_none_where_its_ranks_ended_with_0(
    hosts: list[Host], tmp_path: Path, how: str, kept: str
) -> None:
    """A rank that was killed may have been about to save its part of what another host has saved."""
    save(tmp_path, 0)
    assert hosts[0].hear("checkpoint-uploaded")
    finish(hosts[::-1], how)
    assert hosts[0].kept["newest"] == kept, hosts[0].said


def test_files_of_one_name_and_size_that_differ_are_known_again(tmp_path: Path) -> None:
    """What is at the store stays as it is; a host that took the other's file for its own sent its part again, alone."""
    for place in (0, 1):
        (tmp_path / f"host{place}" / "new-1.tmp").mkdir(parents=True)
        (tmp_path / f"host{place}" / "new-1.tmp" / "state").write_text(f"of {place}")
        (tmp_path / f"host{place}" / "new-1.tmp").rename(tmp_path / f"host{place}" / "checkpoint-1")
    with keeping(tmp_path) as first:
        finish(first)
        assert (first[0].kept["number"], places(tmp_path)) == (1, {0, 1}), first[0].said
    with keeping(tmp_path) as second:
        finish(second)
        assert [host.kept["bytes"] for host in second] == [0, 0], second[0].said
        assert len(list((tmp_path / "place" / "manifests").iterdir())) == 1


@pytest.mark.lane("suite")
@pytest.mark.parametrize("place", [0, 1])
def test_what_only_one_host_has_from_before_the_job_is_no_checkpoint(tmp_path: Path, place: int) -> None:
    """The other host is a new one, in the place of one that had its part: it would begin with this host's files."""
    (tmp_path / f"host{place}").mkdir()
    save(tmp_path, place)
    time.sleep(0.5)  # files' times are coarse, and that is allowed for
    with keeping(tmp_path) as hosts:
        assert hosts[place].hear("checkpoint-uploaded")
        finish(hosts[::-1])
        assert (hosts[0].kept["newest"], hosts[0].kept["problem"]) == ("", ""), hosts[0].said


EVIL = ["checkpoint-1/state-0", 4, hashlib.sha256(b"EVIL").hexdigest(), "files/1/x/evil", 1, True, "", 0]
LIES: dict[str, dict[str, Any]] = {
    "texts": {"texts": {"checkpoint-1/state-0": "EVIL"}},
    "a text of its kind": {"texts": {"latest": "checkpoint-1"}},
    "a place": {"files": [[*EVIL[:4], 0, *EVIL[5:]]]},
    "a key": {"files": [[*EVIL[:3], "files/0/x/evil", *EVIL[4:]]]},
    "a key above": {"files": [[*EVIL[:3], "files/1/../0/x", *EVIL[4:]]]},
    "a part's place": {"place": 0, "files": []},
    "hosts": {"hosts": 1, "place": 0, "files": []},
    "a name": {"name": "checkpoint-2"},
    "no part": {"files": None},
    "nothing": {},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_host_that_lies_about_its_part_is_named_and_changes_nothing(tmp_path: Path, lie: str) -> None:
    """The first host's file is restored as it was saved, or nothing is."""
    ours, (incoming, outgoing) = links_of_two()
    (tmp_path / "host0").mkdir()
    asked = {"place": 0, "directory": str(tmp_path / "host0"), "uri": str(tmp_path / "place"), "keep": 3}
    leader = Host({**asked, "operations": 0, "below": ""}, *ours)
    try:
        leader.tell("begin")
        assert leader.hear("begin")
        save(tmp_path, 0)
        assert leader.hear("checkpoint-uploaded")
        its = b"of 1"
        files = [["checkpoint-1/state-1", 4, hashlib.sha256(its).hexdigest(), "files/1/x/state-1", 1, False, "", 0]]
        part: dict[str, Any] = {
            "name": "checkpoint-1", "family": "checkpoint-#", "place": 1, "hosts": 2, "files": files, "needs": [],
            "marked": False, "texts": {}, "attempt": 0, "found": False, **LIES[lie],
        }  # fmt: skip
        contents = {
            "files/1/x/state-1": its,
            "files/1/x/evil": b"EVIL",
            "parts/1/x-000001.json": json.dumps(part).encode(),
        }
        for name, content in contents.items():
            (tmp_path / "place" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "place" / name).write_bytes(content)
        for what, about in (("PartKept", ["checkpoint-1", "parts/1/x-000001.json"]), ("NoMoreParts", ["", False])):
            os.write(outgoing, json.dumps([what, about]).encode() + b"\n")
            assert leader.hear(what)
        finish([leader])
        assert leader.kept["newest"] == ("" if LIES[lie] else "checkpoint-1"), leader.said
        assert leader.kept["problem"].startswith("b's part of checkpoint-1 is refused: ") is bool(LIES[lie])
    finally:
        leader.kill()
        leader.end()
        os.close(incoming)
        os.close(outgoing)
    for place in (0, 1):
        target, directory = Target(str(tmp_path / "place"), "j"), tmp_path / f"restored{place}"
        found = restore(target, str(directory), Access(os.environ), Share(place, 2), say=lambda _: None)
        assert found.number == (not LIES[lie])
        if found.number:
            assert (directory / "checkpoint-1" / f"state-{place}").read_text() == f"of {place}"
