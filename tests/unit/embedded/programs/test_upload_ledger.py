"""Which files there are, on a real file system; which go up, and when, from tables of what happens to them."""

from __future__ import annotations

import os
from pathlib import Path

from musterpoint.embedded.programs.file_leases import is_written
from musterpoint.embedded.programs.upload_ledger import (
    FILES,
    LONGEST_FINAL_PAUSE,
    LONGEST_PAUSE,
    SETTLE,
    Ledger,
    is_private,
    listing,
    read_record,
    version_of,
    write_record,
)

ONE, TWO = (1, 10, 100), (1, 20, 100)


def uploading(path: str = "a") -> Ledger:
    ledger = Ledger()
    ledger.changed(path, 0.0)
    assert ledger.ready(SETTLE) == [path]
    ledger.begin(path, ONE)
    return ledger


def test_a_change_settles_first_and_further_ones_add_nothing() -> None:
    ledger = Ledger()
    ledger.changed("a", 0.0)
    ledger.changed("a", 0.9)
    assert (ledger.next_at(), ledger.ready(0.9)) == (SETTLE, [])
    assert ledger.ready(SETTLE) == ["a"]
    assert (ledger.next_at(), ledger.ready(9.0)) == (None, [])


def test_the_longest_due_go_first_a_few_at_a_time() -> None:
    ledger = Ledger()
    for number in range(FILES + 2):
        ledger.changed(str(number), number / 100)
    first = ledger.ready(5.0)
    assert first == [str(number) for number in range(FILES)]
    for path in first:
        ledger.begin(path, ONE)
    assert (ledger.ready(5.0), ledger.next_at()) == ([], None)
    ledger.went_up("0", ONE, 5.0)
    assert ledger.ready(5.0) == [str(FILES)]


def test_what_changes_while_it_goes_up_goes_up_again() -> None:
    ledger = uploading()
    ledger.changed("a", 2.0)
    assert ledger.ready(9.0) == []
    assert not ledger.went_up("a", TWO, 3.0)
    assert ledger.ready(3.0 + SETTLE) == ["a"]
    ledger.begin("a", TWO)
    assert ledger.went_up("a", TWO, 5.0)
    assert ledger.is_up("a", TWO)
    assert not ledger.is_up("a", ONE)
    assert ledger.is_idle


def test_a_renamed_or_deleted_file_is_forgotten() -> None:
    ledger = Ledger()
    ledger.changed("x.tmp", 0.0)
    ledger.forget("x.tmp")
    ledger.changed("x", 0.1)
    assert ledger.ready(5.0) == ["x"]
    gone = uploading()
    assert gone.went_up("a", None, 2.0)
    assert gone.is_idle
    lost = uploading()
    assert not lost.failed("a", None, 2.0, False)
    assert lost.is_idle


def test_failures_pause_everything_longer_each_time_and_a_success_ends_that() -> None:
    ledger = uploading()
    pauses, now = [], SETTLE
    for _ in range(9):
        assert ledger.failed("a", ONE, now, True)
        pauses.append((ledger.next_at() or 0.0) - now)
        now += pauses[-1]
        assert ledger.ready(now) == ["a"]
        ledger.begin("a", ONE)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, LONGEST_PAUSE]
    ledger.went_up("a", ONE, now)
    ledger.changed("b", now)
    assert ledger.next_at() == now + SETTLE


def test_a_failure_of_a_file_that_changed_is_none() -> None:
    ledger = uploading()
    assert not ledger.failed("a", TWO, 2.0, False)
    assert ledger.ready(2.0) == ["a"]


def test_at_the_end_nothing_waits() -> None:
    ledger = uploading()
    ledger.failed("a", ONE, 2.0, True)
    ledger.changed("b", 2.0)
    ledger.hurry()
    assert ledger.ready(2.0) == ["a", "b"]
    ledger.begin("a", ONE)
    ledger.begin("b", ONE)
    ledger.failed("a", ONE, 2.0, True)
    assert ledger.ready(2.0) == ["a"], "what won't change isn't waited for"
    for _ in range(9):
        ledger.begin("a", ONE)
        ledger.failed("a", ONE, 2.0, False)
        assert ledger.ready(2.0 + LONGEST_FINAL_PAUSE) == ["a"]


def test_what_a_predecessor_uploaded_and_what_can_not_go_up() -> None:
    ledger = Ledger({"a": ONE})
    assert ledger.is_up("a", ONE)
    ledger.changed("b", 0.0)
    ledger.ready(SETTLE)
    ledger.begin("b", ONE)
    ledger.refused("b")
    assert ledger.is_idle


def test_links_to_files_count_and_private_and_linked_directories_do_not(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_text("bb")
    (tmp_path / ".tmp.mine").mkdir()
    (tmp_path / ".tmp.mine" / "c").write_text("c")
    (tmp_path / ".hidden").write_text("h")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "out").symlink_to("/etc/hostname")
    (tmp_path / "circle").symlink_to(".")
    (tmp_path / "nowhere").symlink_to("missing")
    os.mkfifo(tmp_path / "pipe")
    found = listing(str(tmp_path))
    assert sorted(found) == [".hidden", "a", "link", "sub/b"]
    assert found["link"] == found["a"]
    assert listing(str(tmp_path), "sub") == {"sub/b": found["sub/b"]}
    assert listing(str(tmp_path), ".tmp.mine") == {}
    assert is_private(".tmp.mine/deep/c")
    assert not is_private(".tmp.file")


def test_versions_tell_contents_apart(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert version_of(str(path), str(tmp_path)) is None
    path.write_text("1")
    first = version_of(str(path), str(tmp_path))
    (tmp_path / "b").write_text("2")
    os.utime(tmp_path / "b", ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns))
    os.replace(tmp_path / "b", path)
    assert version_of(str(path), str(tmp_path)) not in (first, None)
    assert version_of(str(tmp_path), str(tmp_path)) is None
    assert version_of("\0", str(tmp_path)) is None


def test_the_record_outlives_the_uploader_that_was_killed_while_writing_it(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.touch()
    write_record(str(record), "a", (1, 2, 3))
    write_record(str(record), "ä\n", (4, 5, 6))
    with record.open("a") as file:
        file.write('\n["b", 7')
    write_record(str(record), "c", (8, 9, 10))
    write_record(str(record), "a", (1, 3, 3))
    assert read_record(str(record)) == {"a": (1, 3, 3), "ä\n": (4, 5, 6), "c": (8, 9, 10)}


def test_what_is_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with open(path, "w") as file:
        file.write("half")
        file.flush()
        before = is_written(str(path))
    after = is_written(str(path))
    # a file system without leases can't tell
    assert (before, after) in ((True, False), (None, None))
    with open(path):
        assert not is_written(str(path))
    assert is_written(str(tmp_path / "missing")) is None
