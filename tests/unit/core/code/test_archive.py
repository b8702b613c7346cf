"""Hostile archives are refused by member, broken ones said to be broken; nothing lands outside the directory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterable

import pytest

from musterpoint.base.errors import FetchError
from musterpoint.core.code import archive
from musterpoint.core.code.archive import LIMITS, Limits, Unpacked, is_archive, said_of, unpack

Entry = tuple[tarfile.TarInfo, bytes]


def entry(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, **fields: Any) -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def directory(name: str, **fields: Any) -> Entry:
    return entry(name, kind=tarfile.DIRTYPE, **fields)


def symlink(name: str, target: str) -> Entry:
    return entry(name, kind=tarfile.SYMTYPE, linkname=target)


def hard_link(name: str, target: str) -> Entry:
    return entry(name, kind=tarfile.LNKTYPE, linkname=target)


def tar(entries: Iterable[Entry], form: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, errors="surrogateescape") as made:
        for info, content in entries:
            made.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(entries: dict[str, bytes], **attributes: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = attributes.get("mode", 0o644) << 16
            made.writestr(info, content)
    return buffer.getvalue()


def let_in(tmp_path: Path, data: bytes, limits: Limits = LIMITS) -> tuple[Unpacked, Path]:
    """Unpacks ``data`` into a directory that has a neighbour with a secret."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("as it was")
    (tmp_path / "code").mkdir()
    (tmp_path / "packed").write_bytes(data)
    found = unpack(str(tmp_path / "packed"), str(tmp_path / "code"), "sourcedir.tar.gz", limits=limits)
    return found, tmp_path / "code"


def header(name: bytes, size: bytes = b"0" * 11, kind: bytes = b"0") -> bytes:
    """A tar header, byte for byte, for what ``tarfile`` would not write."""
    block = bytearray(512)
    block[0 : len(name)] = name
    block[100:108] = b"0000644\0"
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


SMALL = Limits(members=50, size=100_000, free=10_000, ratio=5)

REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "too many members": (lambda: tar([entry(f"f{number}") for number in range(60)]), "more than 50 members"),
    "a size over the limit": (lambda: tar([entry("big", bytes(100_001))]), "100,001 bytes, more than the"),
    "sizes that add up": (lambda: tar([entry(f"f{n}", os.urandom(30_000)) for n in range(4)]), "member 'f3'"),
    "a bomb": (lambda: gzip.compress(tar([entry("zeros", bytes(90_000))])), "member 'zeros' it unpacks to"),
    "a bomb that says it is small": (lambda: gzip.compress(header(b"f", b"7" * 11) + bytes(1024)), "member 'f'"),
    "a bomb of headers": (lambda: gzip.compress(header(b"x", b"%011o" % 2**33, b"x") + bytes(1024)), "a header in it"),
    "a header of a size below zero": (lambda: header(b"x", b"\xff" * 10 + b"\xf0\0", b"x") + bytes(1024), "a header"),
    "a file of less than nothing": (lambda: header(b"f", b"\xff" * 12) + bytes(1024), "the size of"),
    "a bomb behind the end": (lambda: gzip.compress(tar([entry("f", b"x")]) + bytes(3_000_000)), "unpacks to more"),
    "a zipped bomb": (lambda: zipped({"z": bytes(90_000)}), "member 'z' it unpacks to 90,000 bytes"),
    "names before names": (
        lambda: gzip.compress((header(b"x", b"%011o" % 50_000, b"L") + b"n" * 50_176) * 30 + header(b"f")),
        "unpacks to more"),
}  # fmt: skip
LEFT_OUT: dict[str, tuple[Callable[[], bytes], str]] = {
    "a path that climbs": (lambda: tar([entry("../outside/secret", b"x")]), "'../outside/secret': the path"),
    "a path that climbs in the middle": (lambda: tar([entry("a/../../outside/x", b"x")]), "leads out of the code"),
    "a path that climbs and comes back": (lambda: tar([entry("a/../b", b"x")]), "'a/../b'"),
    "an absolute path": (lambda: tar([entry("/etc/cron.d/x", b"x")]), "'/etc/cron.d/x' is absolute"),
    "two slashes": (lambda: tar([entry("//etc/x", b"x")]), "is absolute"),
    "a Windows path that climbs": (lambda: tar([entry("..\\outside\\secret", b"x")]), "leads out of the code"),
    "a drive": (lambda: tar([entry("C:\\x", b"x")]), "is absolute"),
    "a directory that climbs": (lambda: tar([directory("../outside/d")]), "leads out of the code"),
    "a link to an absolute path": (lambda: tar([symlink("l", "/etc/passwd")]), "'l': it is a link to '/etc/passwd'"),
    "a link that climbs": (lambda: tar([symlink("l", "../outside/secret")]), "leads out of the code"),
    "a link that climbs from a folder": (lambda: tar([symlink("a/l", "../../outside")]), "leads out of the code"),
    "a folder in a link's place": (lambda: tar([symlink("l", ".."), directory("l")]), "'l': a link has its name"),
    "a file through a link": (lambda: tar([symlink("l", "."), entry("l/x", b"x")]), "'l/x': it lies behind a link"),
    "a file through a link that leads out": (
        lambda: tar([directory("d"), symlink("d/l", "../.."), entry("d/l/outside/secret", b"x")]), "behind a link"),
    "a link that leads out by another link": (
        lambda: tar([directory("a/b/c"), symlink("a/b/c/d", "../../.."), symlink("a/b/c/e", "d/../outside/secret")]),
        "'a/b/c/e': it is a link that leads out"),
    "a link that leads out by a link that comes later": (
        lambda: tar([directory("a/b/c"), symlink("a/b/c/e", "d/../outside"), symlink("a/b/c/d", "../../..")]),
        "'a/b/c/e': it is a link that leads out"),
    "a directory, then a link of its name": (lambda: tar([directory("d"), symlink("d", "."), entry("d/x", b"x")]),
     "'d': a member of another kind"),
    "a hard link that climbs": (lambda: tar([hard_link("h", "../outside/secret")]), "'h': the path"),
    "an absolute hard link": (lambda: tar([hard_link("h", "/etc/passwd")]), "is absolute"),
    "a hard link to a symbolic one": (lambda: tar([symlink("s", "t"), hard_link("h", "s")]),
     "which isn't a file before it"),
    "a hard link to what comes later": (lambda: tar([hard_link("h", "f"), entry("f")]), "isn't a file before it"),
    "a hard link to a directory": (lambda: tar([directory("d"), hard_link("h", "d")]), "isn't a file before it"),
    "a named pipe": (lambda: tar([entry("p", kind=tarfile.FIFOTYPE)]), "'p': it is a device, a named pipe"),
    "a character device": (lambda: tar([entry("null", kind=tarfile.CHRTYPE, devmajor=1)]), "it is a device"),
    "an unknown kind": (lambda: header(b"odd", kind=b"Z") + bytes(1024), "of an unknown kind"),
    "a file below a file": (lambda: tar([entry("f", b"x"), entry("f/x", b"x")]), "'f/x': a member of another kind"),
    "a name that is nothing": (lambda: tar([entry("./", b"x")]), "it has no name of its own"),
    "a name that can't be": (lambda: tar([entry("n" * 300, b"x")]), "too long"),
    "a path that can't be": (lambda: tar([entry("d/" * 3000 + "x", b"x")]), "too long"),
    "a path with a NUL": (lambda: tar([entry("a\0b", b"x", pax_headers={"path": "a\0b"})], tarfile.PAX_FORMAT), "NUL"),
    "one of musterpoint's own": (lambda: tar([entry(".muster-part/record", b"x")]), "musterpoint's own"),
    "a zip that climbs": (lambda: zipped({"../outside/secret": b"x"}), "leads out of the code"),
    "an absolute zip": (lambda: zipped({"/etc/x": b"x"}), "is absolute"),
    "a zipped link that climbs": (lambda: zipped({"l": b"../outside"}, mode=stat.S_IFLNK | 0o777), "leads out"),
    "a zipped device": (lambda: zipped({"n": b""}, mode=stat.S_IFCHR | 0o666), "it is a device"),
    "an encrypted zip": (lambda: encrypted(), "'secret': it is a device, a named pipe, encrypted"),
}  # fmt: skip


def encrypted() -> bytes:
    data = bytearray(zipped({"secret": b"x"}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    return bytes(data)


def check_outside(tmp_path: Path) -> None:
    assert (tmp_path / "outside" / "secret").read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "outside", "packed"]
    assert list((tmp_path / "outside").iterdir()) == [tmp_path / "outside" / "secret"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_too_large_is_refused(name: str, tmp_path: Path) -> None:
    make, says = REFUSED[name]
    with pytest.raises(FetchError, match=f"^sourcedir.tar.gz.*{says}|{says}.*sourcedir.tar.gz"):
        let_in(tmp_path, make(), SMALL)
    check_outside(tmp_path)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_leads_elsewhere_is_left_out_and_the_rest_comes_out(name: str, tmp_path: Path) -> None:
    make, says = LEFT_OUT[name]
    found, code = let_in(tmp_path, make(), SMALL)
    assert found.left_out >= 1 and says in said_of(found, "sourcedir.tar.gz")
    check_outside(tmp_path)
    for path in code.rglob("*"):
        assert path.resolve(strict=False).is_relative_to(code)


def renamed(data: bytes, length: int) -> bytes:
    """A zip whose member's own header says that its name is longer."""
    return data[:26] + length.to_bytes(2, "little") + data[28:] + bytes(length)


GOOD = tar([directory("."), entry("train.py", b"print(1)"), entry("./lib/part.py", b"x" * 2000)])
HELLO = zipped({"a": b"hello"})
BROKEN: dict[str, bytes] = {
    "cut short": gzip.compress(GOOD)[:-30],
    "a wrong check sum": gzip.compress(GOOD)[:-8] + b"\0" * 8,
    "a tar cut in a file": GOOD[:3000],
    "a tar cut in a header": GOOD[:2000],
    "a header that is none": GOOD[:1536] + b"\xff" * 512 + GOOD[2048:],
    "rubbish in the middle": gzip.compress(GOOD)[:40] + b"\xff" * 40 + gzip.compress(GOOD)[80:],
    "no tar inside": gzip.compress(b"hello" * 500),
    "a zip cut short": zipped({"a": b"x" * 1000})[:-20],
    "a zip with a wrong check sum": zipped({"a": b"hello"}).replace(HELLO[31:36], b"\x4b\xca\x48\xcd\xc9"),
    "a zip with a long name in place of another": renamed(zipped({"a": b"hello" * 500}), 900),
    "bzip2 cut short": bz2.compress(GOOD)[:-10],
    "xz cut short": lzma.compress(GOOD)[:-10],
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_archives_are_a_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        FetchError, match=r"^sourcedir.tar.gz can't be unpacked: it is broken or cut short: \S"
    ) as error:
        let_in(tmp_path, BROKEN[name])
    assert len(str(error.value)) < 300


PACKED = {
    "gzip": gzip.compress(GOOD), "plain": GOOD, "bzip2": bz2.compress(GOOD), "xz": lzma.compress(GOOD),
    "pax": tar([directory("."), entry("train.py", b"print(1)"), entry("lib/part.py", b"x" * 2000)], tarfile.PAX_FORMAT),
    "zip": zipped({"train.py": b"print(1)", "lib/": b"", "lib/part.py": b"x" * 2000}),
    "xz's strongest": lzma.compress(GOOD, preset=9 | lzma.PRESET_EXTREME),
    "xz in two streams": lzma.compress(GOOD[:1000]) + lzma.compress(GOOD[1000:]),
    "something behind an xz": lzma.compress(GOOD) + b"something",
    "bzip2 in two streams": bz2.compress(GOOD[:1000]) + bz2.compress(GOOD[1000:]),
    "gzip in two members": gzip.compress(GOOD[:1000]) + gzip.compress(GOOD[1000:]),
    "something behind the end": gzip.compress(GOOD) + b"\n",
    "without the blocks of the end": gzip.compress(GOOD.rstrip(b"\0") + bytes(-len(GOOD.rstrip(b"\0")) % 512)),
}  # fmt: skip


@pytest.mark.parametrize("packing", PACKED)
def test_what_is_packed_comes_out(packing: str, tmp_path: Path) -> None:
    found, code = let_in(tmp_path, PACKED[packing])
    assert found == Unpacked(3, 2008)
    assert (code / "train.py").read_bytes() == b"print(1)"
    assert (code / "lib" / "part.py").read_bytes() == b"x" * 2000
    assert is_archive(str(tmp_path / "packed"))


@pytest.mark.parametrize("content", [b"", b"print('hello')\n", b"#!/bin/sh\n", bytes(2000), b"\x7fELF" + bytes(600)])
def test_what_is_no_archive(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert not is_archive(str(tmp_path / "file"))


def test_an_old_tar_is_one(tmp_path: Path) -> None:
    old = bytearray(header(b"train.py", b"00000000002"))
    old[257:265] = bytes(8)
    old[148:156] = b" " * 8
    old[148:156] = b"%06o\0 " % sum(old)
    (tmp_path / "file").write_bytes(bytes(old))
    assert is_archive(str(tmp_path / "file"))
    assert let_in(tmp_path, bytes(old) + b"hi".ljust(512, b"\0") + bytes(1024))[0] == Unpacked(1, 2)


def test_what_a_file_may_not_keep(tmp_path: Path) -> None:
    entries = [
        directory("d", mode=0o7777), entry("d/suid", b"x", mode=0o6777), entry("run.sh", b"x", mode=0o755),
        entry("locked", b"x", mode=0o000), directory("closed", mode=0o000), entry("closed/in", b"x"),
        entry("owned", b"x", uid=12345, gid=12345, uname="nobody", mtime=1_000_000_000),
        entry("never", b"x", mtime=2**35),
    ]  # fmt: skip
    _, code = let_in(tmp_path, tar(entries))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in code.rglob("*")}
    assert modes == {
        "d": 0o755, "suid": 0o755, "run.sh": 0o755, "locked": 0o600, "closed": 0o700, "in": 0o644, "owned": 0o644,
        "never": 0o644,
    }  # fmt: skip
    owned = (code / "owned").stat()
    assert (owned.st_uid, owned.st_mtime) == (os.getuid(), 1_000_000_000)


def test_links_that_stay_inside(tmp_path: Path) -> None:
    entries = [
        entry("data/a", b"x"), symlink("b", "data/a"), symlink("data/up", ".."), symlink("nowhere", "data/none"),
        hard_link("data/hard", "data/a"), symlink("ring", "ring"), hard_link("data/hard", "data/a"),
    ]  # fmt: skip
    _, code = let_in(tmp_path, tar(entries))
    assert (code / "b").read_text() == "x"
    assert (code / "data" / "hard").samefile(code / "data" / "a")
    assert os.readlink(code / "nowhere") == "data/none"


def test_the_last_of_two_counts(tmp_path: Path) -> None:
    """The SDK adds each dependency at the root by its base name, over a file of the source directory."""
    entries = [entry("utils.py", b"first"), entry("utils.py", b"last"), directory("d"), entry("d/x"), directory("d")]
    _, code = let_in(tmp_path, tar(entries))
    assert (code / "utils.py").read_text() == "last"
    assert (code / "d" / "x").exists()


def test_a_duplicate_does_not_write_into_the_file_it_was_linked_to(tmp_path: Path) -> None:
    _, code = let_in(tmp_path, tar([entry("a", b"first"), hard_link("b", "a"), entry("a", b"last")]))
    assert ((code / "a").read_text(), (code / "b").read_text()) == ("last", "first")


@pytest.mark.parametrize(
    "name", ["ä中.py", "caf\udce9.py", "a b.py", "new\nline", "-rf", "x\\y.py", "~root", "C:x", "..x"]
)
def test_odd_names(name: str, tmp_path: Path) -> None:
    _, code = let_in(tmp_path, tar([entry(name, b"x")]))
    assert (code / name.replace("\\", "/")).read_text() == "x"


def test_a_name_is_shown_so_that_it_can_be_printed(tmp_path: Path) -> None:
    found, _ = let_in(tmp_path, tar([entry("../caf\udce9\n\x1b[2J", b"x")]))
    assert said_of(found, "x").isascii() and said_of(found, "x").isprintable()
    assert len(archive.shown("../" + "n" * 5000)) < 250


@pytest.mark.parametrize(
    "form", ["--format=gnu", *(f"--format=posix --sparse-version={n}" for n in ("0.0", "0.1", "1.0"))]
)
def test_a_sparse_file_is_whole_and_counts_with_its_holes(form: str, tmp_path: Path) -> None:
    sparse = tmp_path / "holes"
    with sparse.open("wb") as file:
        for number in range(60):
            file.seek(number * 20_000 + 10_000)
            file.write(b"%05d" % number)
    words = ["tar", "--sparse", *form.split(), "-czf", "made.tar.gz", "holes"]
    assert subprocess.run(words, cwd=tmp_path, check=True)
    data, content = (tmp_path / "made.tar.gz").read_bytes(), sparse.read_bytes()
    with pytest.raises(FetchError, match=f"unpacks to {len(content):,} bytes"):
        let_in(tmp_path, data, SMALL)
    (tmp_path / "whole").mkdir()
    assert (let_in(tmp_path / "whole", data)[1] / "holes").read_bytes() == content


def test_breath_is_taken_between_members(tmp_path: Path) -> None:
    taken = []
    (tmp_path / "code").mkdir()
    (tmp_path / "packed").write_bytes(tar([entry("a", bytes(3 * 1024 * 1024)), entry("b")]))
    unpack(str(tmp_path / "packed"), str(tmp_path / "code"), "x", lambda: taken.append(1))
    assert len(taken) >= 5


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "symlink", full)
    with pytest.raises(FetchError, match=r"gz: 'd' can't be written: No space left on device"):
        let_in(tmp_path, tar([symlink("d", "x")]))


def test_what_the_disk_has_no_room_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_bavail=1, f_frsize=1))
    with pytest.raises(FetchError, match=r"unpacks to 5 bytes, and the disk of .*code has room for 1"):
        let_in(tmp_path, tar([entry("d/f", b"hello")]))
    assert list((tmp_path / "code").iterdir()) == []
