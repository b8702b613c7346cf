"""What an archive's members are, whatever it is packed with. What may be let in is the archive's tests."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from musterpoint.base.errors import FetchError
from musterpoint.core.code.archive_members import zip_members
from musterpoint.core.code.packed import packing_of
from musterpoint.core.code.tar import tar_members


def test_packings_by_their_first_bytes() -> None:
    heads = {b"\x1f\x8b\x08": "gzip", b"BZh9": "bzip2", b"\xfd7zXZ\0": "xz", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip"}
    assert {head: packing_of(head) for head in heads} == heads
    assert packing_of(b"print(1)") == packing_of(b"") == ""


def test_the_members_of_a_tar(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        for name, kind in (("d", tarfile.DIRTYPE), ("d/f", tarfile.REGTYPE), ("s", tarfile.SYMTYPE),
                           ("h", tarfile.LNKTYPE), ("p", tarfile.FIFOTYPE), ("c", tarfile.CHRTYPE)):  # fmt: skip
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mtime, member.size = kind, "d/f", 5, 2 * (kind == tarfile.REGTYPE)
            made.addfile(member, io.BytesIO(b"hi"))
    found = list(tar_members(str(tmp_path / "a.tar"), "", "a.tar", 10**6))
    assert [(member.name, member.kind, member.size, member.other) for member in found] == [
        ("d/", "directory", 0, ""), ("d/f", "file", 2, ""), ("s", "symlink", 0, ""), ("h", "hard link", 0, ""),
        ("p", "other", 0, "a named pipe"), ("c", "other", 0, "a device"),
    ]  # fmt: skip
    assert (found[2].target, found[1].modified) == ("d/f", 5.0)


def test_the_content_of_a_member(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as made:
        member = tarfile.TarInfo("f")
        member.size = 2
        made.addfile(member, io.BytesIO(b"hi"))
    (tmp_path / "a.tgz").write_bytes(gzip.compress(data.getvalue()))
    contents = []
    for each in tar_members(str(tmp_path / "a.tgz"), "gzip", "a.tgz", 10**6):
        contents.append(b"".join(each.pieces()))
    assert contents == [b"hi"]


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


def test_more_than_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(gzip.compress(bytes(100_000)))
    with pytest.raises(FetchError, match=r"a.tgz is refused: it unpacks to more than 1,000 bytes"):
        list(tar_members(str(tmp_path / "a.tgz"), "gzip", "a.tgz", 1000))
