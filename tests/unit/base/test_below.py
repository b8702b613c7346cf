"""Names that others made lead to files below a directory, or nowhere."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musterpoint.base import below as below_module
from musterpoint.base.below import Archive, Below, Changed, ForeignName, Tree, below, link_target, notes_of

from ...examples import examples

PARTS = st.sampled_from(["a", "b", "..", ".", "", "/", "\0", "link", ".muster-part", "x" * 256, "\ud800", "é", "etc"])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=5).map("/".join))
def test_no_name_leads_out(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Whatever the name is, nothing but what is below the directory is made or removed."""
    folder = tmp_path_factory.mktemp("names")
    root, outside = folder / "root", folder / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "a").write_text("theirs")
    (root / "link").symlink_to(outside)
    (folder / "part").write_text("ours")
    tree = Below(str(root))
    try:
        assert os.path.normpath(below(str(root), name)).startswith(f"{root}/")
        tree.put(str(folder / "part"), name)
        tree.remove(name)
    except (ForeignName, OSError):
        pass
    assert sorted(path.name for path in folder.iterdir() if path.name != "part") == ["outside", "root"]
    assert [path.name for path in outside.iterdir()] == ["a"] and (outside / "a").read_text() == "theirs"


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "..", "", "../root/../../x", ".muster-part/record"])
def test_no_link_leads_out(target: str) -> None:
    with pytest.raises(ForeignName):
        link_target("sub/last", target)


def test_a_link_inside_leads_to_its_target() -> None:
    assert link_target("sub/last", "../step-3") == "step-3"


def test_a_folder_that_another_host_of_the_disk_removes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, path = tmp_path / "part", tmp_path / "root" / "checkpoint-1" / "a.bin"
    part.write_text("all of it")
    replace, removals = os.replace, iter((True, True, False))

    def removed(source: str, target: str, dst_dir_fd: int) -> None:
        if next(removals):
            os.rmdir(path.parent)
        replace(source, target, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "replace", removed)
    Below(str(tmp_path / "root")).put(str(part), "checkpoint-1/a.bin")
    assert path.read_text() == "all of it"
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        Below(str(tmp_path / "root")).put(str(tmp_path / "gone"), "checkpoint-1/a.bin")


def test_notes_are_beside_the_directory_and_this_users_alone(tmp_path: Path) -> None:
    directory, beside = tmp_path / "ck", tmp_path / ".muster-ck"
    directory.mkdir()
    (tmp_path / "link").symlink_to(directory)
    assert notes_of(str(directory)) == str(beside) and not beside.exists()
    for mode in (None, 0o755):  # an earlier version let others read them
        if mode is not None:
            beside.chmod(mode)
        assert notes_of(str(tmp_path / "link"), make=True) == str(beside)
        assert beside.stat().st_mode & 0o777 == 0o700 and not list(directory.iterdir())


@pytest.mark.parametrize("theirs", ["link", "file", "others may write", "another user"])
def test_notes_that_others_have_made_are_left_alone(tmp_path: Path, theirs: str) -> None:
    """As in /tmp, where everybody may make a folder of that name first."""
    directory, beside, victim = tmp_path / "ck", tmp_path / ".muster-ck", tmp_path / "victim"
    directory.mkdir()
    victim.mkdir()
    (victim / "precious").write_text("mine")
    if theirs == "link":
        beside.symlink_to(victim)
    elif theirs == "file":
        beside.touch()
    else:
        beside.mkdir()
        if theirs == "another user":
            if os.geteuid():
                pytest.skip("only root can make a folder of another user")
            os.chown(beside, 65534, 65534)
        beside.chmod(0o777 if theirs == "others may write" else 0o700)
    inside = str(directory / ".muster-part")
    for make in (False, True):
        assert notes_of(str(directory), make) == inside
    assert os.stat(inside).st_mode & 0o777 == 0o700
    assert (victim / "precious").read_text() == "mine" and os.listdir(victim) == ["precious"]


def test_notes_inside_follow_no_link(tmp_path: Path) -> None:
    directory = tmp_path / "ck"
    directory.mkdir()
    (tmp_path / ".muster-ck").touch()
    (directory / ".muster-part").symlink_to(tmp_path)
    with pytest.raises(OSError):
        notes_of(str(directory), make=True)


def swapped(path: Path, to: Path) -> None:
    """Puts a link in the place of a folder or file, as a job may."""
    path.rename(path.with_name(f"{path.name}-before"))
    path.symlink_to(to)


SWAPS: dict[str, Callable[[Path, Path], None]] = {
    "the folder": lambda root, machine: swapped(root / "sub", machine / "sub"),
    "the root": lambda root, machine: swapped(root, machine),
    "the folder above": lambda root, machine: swapped(root.parent, machine.parent),
    "the file": lambda root, machine: swapped(root / "sub" / "a", machine / "sub" / "a"),
    "a pipe": lambda root, machine: (os.unlink(root / "sub" / "a"), os.mkfifo(root / "sub" / "a"))[0],
}


@pytest.mark.parametrize("swap", SWAPS)
def test_nothing_is_read_through_a_link_that_a_job_has_made_meanwhile(tmp_path: Path, swap: str) -> None:
    root, machine = tmp_path / "job" / "ck", tmp_path / "machine" / "ck"
    for folder, text in ((root, "job's"), (machine, "machine's")):
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "a").write_text(text)
    (root / "link").symlink_to("sub/a")
    tree = Tree(str(root))
    names = [tree.real(name) for name in ("sub/a", "link")]
    assert names == ["sub/a", "sub/a"] and tree.read("sub/a", 9) == b"job's"
    SWAPS[swap](root, machine)
    for name in names:
        with pytest.raises(OSError):
            tree.file(name)
    found = dict(tree.walk()).get("sub/a")
    assert found is None or not stat.S_ISREG(found.st_mode)
    with contextlib.suppress(OSError):
        tree.link("sub/a", str(tmp_path / "held"))
    with pytest.raises(OSError):
        Below(str(tmp_path)).file("held")


def test_a_tree_walks_without_links_and_our_own(tmp_path: Path) -> None:
    for name in ("a/b/c", "a/.muster-part/record", ".tmp.1/x", ".tmp.file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a" / "up").symlink_to("..")
    tree = Tree(str(tmp_path))
    assert [name for name, _ in tree.walk()] == [".tmp.1", ".tmp.1/x", ".tmp.file", "a", "a/b", "a/b/c", "a/up"]
    assert [name for name, _ in tree.walk(private=".tmp.")] == [".tmp.file", "a", "a/b", "a/b/c", "a/up"]
    assert tree.real("a/up") == "."
    (tmp_path / "out").symlink_to("/etc/hostname")
    with pytest.raises(ForeignName):
        tree.real("out")


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_notes_inside_that_others_may_write_are_refused(tmp_path: Path, mode: int) -> None:
    """Another user may have put them there, where the place beside is taken, too."""
    (tmp_path / "ck").mkdir()
    (tmp_path / ".muster-ck").write_text("taken")
    inside = tmp_path / "ck" / ".muster-part"
    inside.mkdir()
    inside.chmod(mode)
    for make in (False, True):
        with pytest.raises(PermissionError, match="isn't a folder of this user's alone"):
            notes_of(str(tmp_path / "ck"), make)
    inside.chmod(0o755)
    assert notes_of(str(tmp_path / "ck"), make=True) == str(inside)
    assert inside.stat().st_mode & 0o777 == 0o700


class Writer:
    """Changes a file whenever it is read, as often as it is told; it begins with ``A`` only."""

    SIZE = 1 << 18

    def __init__(self, path: Path, times: int, change: Callable[[Path], object]) -> None:
        path.write_bytes(b"A" * self.SIZE)
        self._path, self._left, self._change, self._count = path, times, change, 0

    def open(self, file: Any, mode: str) -> Any:
        """As ``open``; what reads is watched."""
        if mode != "rb":
            return open(file, mode)
        writer = self

        class Reader(io.FileIO):
            def read(self, size: int = -1, /) -> Any:
                data = super().read(size)
                if os.path.samestat(os.fstat(self.fileno()), os.stat(writer._path)) and writer._left > 0:
                    writer._left -= 1
                    writer._change(writer._path)
                return data

        return Reader(file, mode)


def rewritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"B" * Writer.SIZE)


def rewritten_with_its_time(path: Path) -> None:
    facts = path.stat()
    rewritten(path)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"C")


def halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


CHANGES: list[tuple[Callable[[Path], object], bytes]] = [
    (rewritten, b"B" * Writer.SIZE),
    (rewritten_with_its_time, b"B" * Writer.SIZE),
    (halved, b"A" * (Writer.SIZE // 2)),
    (longer, b"A" * Writer.SIZE + b"C"),
]


def packed(folder: Path, archive: Path) -> dict[str, bytes]:
    """Packs all of a folder but what changes; what an archive then has."""
    with Archive(str(archive)) as made:
        for name, _ in Below(str(folder)).walk():
            with contextlib.suppress(Changed):
                Below(str(folder)).pack(name, made, name)
    subprocess.run(["tar", "-tzf", archive], check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(archive) as found:
        return {each.name: file.read() for each in found if (file := found.extractfile(each)) is not None}


@pytest.mark.parametrize(("change", "content"), CHANGES, ids=["rewritten", "with its time", "halved", "longer"])
def test_a_file_that_changes_while_it_is_packed_is_packed_again(
    change: Callable[[Path], object], content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    for name in ("a", "z"):
        (tmp_path / "model" / name).write_text(name)
    writer = Writer(tmp_path / "model" / "m", 1, change)
    monkeypatch.setattr(below_module, "open", writer.open, raising=False)
    assert packed(tmp_path / "model", tmp_path / "made") == {"a": b"a", "m": content, "z": b"z"}


@pytest.mark.parametrize("change", [longer, halved])
def test_a_file_that_changes_all_the_time_is_left_out(
    change: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    for name in ("a", "z"):
        (tmp_path / "model" / name).write_text(name)
    writer = Writer(tmp_path / "model" / "m", 1000, change)
    os.link(tmp_path / "model" / "m", tmp_path / "model" / "other")
    monkeypatch.setattr(below_module, "open", writer.open, raising=False)
    assert packed(tmp_path / "model", tmp_path / "made") == {"a": b"a", "z": b"z"}


def test_a_hard_link_is_packed_once(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_text("a")
    os.link(tmp_path / "model" / "a", tmp_path / "model" / "b")
    assert packed(tmp_path / "model", tmp_path / "made") == {"a": b"a", "b": b"a"}
    with tarfile.open(tmp_path / "made") as found:
        assert found.getmember("b").linkname == "a"
