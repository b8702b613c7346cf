"""Tars as the world makes them: what comes out is what GNU tar and Python's tarfile put in."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from musterpoint.core.code.archive import is_archive
from musterpoint.core.code.archive_members import ArchiveMember, zip_members
from musterpoint.core.code.packed import packing_of
from musterpoint.core.code.tar import tar_members

from .test_archive import header

FORMS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
SPARSE = ["--format=gnu", "--format=posix --sparse-version=0.0", "--format=posix --sparse-version=0.1",
          "--format=posix --sparse-version=1.0"]  # fmt: skip


def found(path: Path) -> list[tuple[ArchiveMember, bytes]]:
    return [(each, b"".join(each.pieces())) for each in tar_members(str(path), "", path.name, 2**40)]


@pytest.mark.parametrize("form", FORMS)
def test_what_tarfile_writes_is_read(form: str, tmp_path: Path) -> None:
    names = ["a", "d/" * 40 + "x", "n" * 100, ("d" * 60 + "/") * 3 + "f", "z"]
    if form != "ustar":
        names += ["ä中\U0001f600.py", "n" * 200, "caf\udce9.py", ("long" * 40 + "/") * 20 + "f"]
    contents = {name: os.urandom(number * 300) for number, name in enumerate(names)}
    with tarfile.open(tmp_path / "a.tar", "w", format=FORMS[form], errors="surrogateescape") as made:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode, info.uid = len(content), 1_000_000_000.25, 0o640, 12_345  # type: ignore[assignment]
            info.mtime = info.mtime if form == "pax" else int(info.mtime)
            made.addfile(info, io.BytesIO(content))
            link = tarfile.TarInfo("link to " + name[:80])
            link.type, link.linkname = tarfile.SYMTYPE, name if form != "ustar" else name[:100]
            made.addfile(link)
    members = found(tmp_path / "a.tar")
    assert {member.name: content for member, content in members if member.kind == "file"} == contents
    assert [(each.name, each.target) for each, _ in members if each.kind == "symlink"] == [
        ("link to " + name[:80], name if form != "ustar" else name[:100]) for name in names
    ]
    assert {member.modified for member, _ in members[::2]} == {1_000_000_000.25 if form == "pax" else 1_000_000_000}
    assert {member.mode for member, _ in members[::2]} == {0o640}


@pytest.mark.parametrize("words", SPARSE)
@pytest.mark.parametrize("pieces", [1, 3, 60])
def test_holes_are_filled_in_every_format_of_gnu_tar(words: str, pieces: int, tmp_path: Path) -> None:
    with (tmp_path / "holes").open("wb") as file:
        for number in range(pieces):
            file.seek(number * 200_000 + 100_000)
            file.write(b"%05d" % number * 900)
        file.truncate(pieces * 200_000 + 150_000)
    (tmp_path / "behind").write_bytes(b"behind")
    command = ["tar", "--sparse", *words.split(), "-cf", "made.tar", "holes", "behind"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (tmp_path / "made.tar").stat().st_size < (tmp_path / "holes").stat().st_size / 2, "it isn't sparse"
    members = found(tmp_path / "made.tar")
    assert [(member.name, member.size) for member, _ in members] == [
        ("holes", pieces * 200_000 + 150_000), ("behind", 6),
    ]  # fmt: skip
    assert members[0][1] == (tmp_path / "holes").read_bytes() and members[1][1] == b"behind"


def test_a_content_that_is_not_read_is_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        for name in "abc":
            info = tarfile.TarInfo(name)
            info.size = 5000
            made.addfile(info, io.BytesIO(name.encode() * 5000))
    contents = []
    for member in tar_members(str(tmp_path / "a.tar"), "", "a.tar", 10**6):
        if member.name != "a":
            contents.append(next(iter(member.pieces())))
    assert contents == [b"b" * 5000, b"c" * 5000]


def test_what_holds_for_all_members_does(tmp_path: Path) -> None:
    extended = tarfile.TarInfo.create_pax_global_header({"mtime": "5", "comment": "x" * 1000})
    (tmp_path / "a.tar").write_bytes(extended + header(b"a") + header(b"b") + bytes(1024))
    assert [(member.name, member.modified) for member, _ in found(tmp_path / "a.tar")] == [("a", 5), ("b", 5)]


def test_a_size_beyond_octal_digits(tmp_path: Path) -> None:
    """Over 8 GiB: GNU's binary numbers, and pax's records. Only the headers are here."""
    for number, form in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        info = tarfile.TarInfo("big")
        info.size = 9 * 1024**3
        path = tmp_path / f"{number}.tar"
        path.write_bytes(info.tobuf(form))
        assert next(tar_members(str(path), "", "big.tar", 2**40)).size == info.size
        assert is_archive(str(path))


def test_check_sums_of_signed_bytes(tmp_path: Path) -> None:
    """As some old systems made them."""
    block = bytearray(header("ä".encode("latin-1")))
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % (sum(block) - 256)
    (tmp_path / "a.tar").write_bytes(bytes(block) + bytes(1024))
    assert [member.name for member, _ in found(tmp_path / "a.tar")] == ["\udce4"]


def test_packings_by_their_first_bytes() -> None:
    heads = {b"\x1f\x8b\x08": "gzip", b"BZh9": "bzip2", b"\xfd7zXZ\0": "xz", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip"}
    assert {head: packing_of(head) for head in heads} == heads
    assert packing_of(b"print(1)") == packing_of(b"") == ""


def test_the_members_of_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        for name, mode, text in (("d/", 0, ""), ("f", 0, "hi"), ("x.sh", stat.S_IFREG | 0o755, ""),
                                 ("s", stat.S_IFLNK | 0o777, "f"), ("p", stat.S_IFIFO, "")):  # fmt: skip
            entry = zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 6))
            entry.external_attr = mode << 16 | 0x20  # so that a mode of 0 stays
            made.writestr(entry, text)
    found, contents = [], []
    for each in zip_members(str(tmp_path / "a.zip"), "a.zip"):
        found.append(each)
        contents.append(b"".join(each.pieces()) if each.kind == "file" else b"")
    assert [(member.name, member.kind, oct(member.mode)) for member in found] == [
        ("d/", "directory", "0o755"), ("f", "file", "0o644"), ("x.sh", "file", "0o755"), ("s", "symlink", "0o777"),
        ("p", "other", "0o644"),
    ]  # fmt: skip
    assert (found[3].target, found[4].other) == ("f", "a device or named pipe")
    assert contents == [b"", b"hi", b"", b"", b""]
    assert found[1].modified > 10**8
