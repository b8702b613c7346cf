"""What an archive's members are, whatever it is packed with. What may be let in is the archive's tests."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

from musterpoint.core.code.archive_members import zip_members
from musterpoint.core.code.packed import packing_of


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
