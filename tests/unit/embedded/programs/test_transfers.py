"""Names that a store lists, and files that come in another size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.embedded.programs.stores import UNKNOWN, DirectoryStore, Item, OnBytes, OnDone, StoreError
from musterpoint.embedded.programs.transfers import checked, fetch_all, scratch


@pytest.mark.parametrize(
    "name", ["../../escaped", "/tmp/x", "a//b", ".muster-part/record", "a/..", "a\0b", "n" * 256, "a/./b"]
)
def test_a_key_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="s3://b/ck"):
        checked([Item("a", 1, ""), Item(name, 1, "")], "s3://b/ck")
    with pytest.raises(StoreError):
        DirectoryStore(str(tmp_path / "store")).write(name, b"")
    assert list(tmp_path.iterdir()) == []


class Odd(DirectoryStore):
    """Its list says another size than its files have."""

    def item(self, name: str) -> Item | None:
        return Item(name, 0, "1")

    def fetch(self, item: Item, path: str, on_bytes: OnBytes, on_done: OnDone) -> None:
        Path(path).write_text("content")
        on_done(None)


def test_a_file_that_comes_in_another_size_is_given_up_and_one_of_no_said_size_is_taken(tmp_path: Path) -> None:
    def bring(size: int) -> None:
        items = [Item("a", size, "1")]
        fetch_all(Odd(str(tmp_path)), items, str(tmp_path / "train"), lambda _: None, lambda _: None)

    with pytest.raises(StoreError, match="a has 0 bytes in the store's list, and 7 came, 5 times in a row"):
        bring(0)
    assert not (tmp_path / "train" / "a").exists()
    bring(UNKNOWN)
    assert (tmp_path / "train" / "a").read_text() == "content"


def test_the_scratch_of_the_living_stays_and_of_the_dead_goes(tmp_path: Path) -> None:
    (tmp_path / ".muster-scratch-dead").mkdir()
    (tmp_path / ".muster-scratch-link").symlink_to("/etc")
    with scratch(str(tmp_path)) as first, scratch(str(tmp_path)) as second:
        assert os.path.isdir(first) and first != second and os.stat(second).st_mode & 0o777 == 0o700
        assert not (tmp_path / ".muster-scratch-dead").exists()
    assert [path.name for path in tmp_path.iterdir()] == [".muster-scratch-link"]
