"""Archives that want memory, time or disk: a process of its own unpacks each, and stays small whatever comes."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Callable, Iterable

import pytest

from musterpoint.core.code.archive_members import ZIP_MEMBERS

from .test_archive import header

MEGA = 1024**2
MEMORY = 200 * MEGA

CHILD = """
import json, os, re, sys
from musterpoint.core.code.archive import unpack
from musterpoint.base.errors import MusterError
try:
    said = list(unpack(sys.argv[1], sys.argv[2], "sourcedir.tar.gz"))
except MusterError as error:
    said = f"{error.code}: {error}"
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
print(json.dumps([said, peak]))
"""


def unpacked(data: Iterable[bytes], tmp_path: Path, environ: dict[str, str]) -> tuple[object, int]:
    """What unpacking comes to in a process of its own, and its most memory in bytes."""
    with (tmp_path / "packed").open("wb") as file:
        file.writelines(data)
    (tmp_path / "code").mkdir()
    words = [sys.executable, "-c", CHILD, str(tmp_path / "packed"), str(tmp_path / "code")]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said, peak = json.loads(done.stdout)
    return said, peak


def pax(kind: bytes, *records: bytes) -> bytes:
    """An extended header of ``key=value`` records."""
    text = b""
    for record in records:
        length = len(record) + 3
        while len(b"%d %s\n" % (length, record)) != length:
            length += 1
        text += b"%d %s\n" % (length, record)
    return header(b"x", b"%011o" % len(text), kind) + text + bytes(-len(text) % 512)


def many(count: int, length: int = 12) -> bytes:
    """A tar of empty files with names of their own."""
    first = bytearray(header(b"0" * length))
    first[148:156] = b" " * 8
    total = sum(first) - length * ord("0")
    blocks = []
    for number in range(count):
        name = b"%0*d" % (length, number)
        first[:length] = name
        first[148:156] = b"%06o\0 " % (total + sum(name))
        blocks.append(bytes(first))
    return b"".join(blocks)


def xz_with_dictionary(data: bytes, exponent: int) -> bytes:
    """An xz that says of itself that its dictionary has 2 to the power of ``exponent`` bytes."""
    packed = bytearray(lzma.compress(data, preset=0))
    size = (packed[12] + 1) * 4
    assert packed[13:16] == b"\0\x21\x01"
    packed[16] = 2 * (exponent - 12)
    packed[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(packed[12 : 12 + size - 4]))
    return bytes(packed)


def directory(
    count: int, name: int = 8, comment: int = 0, claimed: int | None = None, wide: bool = False, mark: bytes = b""
) -> list[bytes]:
    """A zip with a directory of ``count`` empty files, all of which lie at its beginning."""
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, name, 0) + b"0" * name
    entries = [
        struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0x800, 0, 0, 33, 0, 0, 0, name, 0, comment, 0, 0, 0, 0)
        + (mark + b"%0*d" % (name - len(mark), number)) + bytes(comment)
        for number in range(count)
    ]  # fmt: skip
    size, told = len(entries) * len(entries[0]), count if claimed is None else claimed
    end = b""
    if wide:
        end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, told, told, size, len(local))
        end += struct.pack("<4sIQI", b"PK\6\7", 0, len(local) + size, 1)
    short = (0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF) if wide else (told % 65536, told % 65536, size, len(local))
    return [local, *entries, end + struct.pack("<4s2H2H2IH", b"PK\5\6", 0, 0, *short, 0)]


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(data) + packer.flush()


def one_zipped(content: bytes, claimed: int, method: int = 8, mode: int = 0o100644) -> list[bytes]:
    """A zip of one member whose content is said to have ``claimed`` bytes."""
    facts = (method, 0, 33, 0, len(content), claimed, 1, 0)
    local = struct.pack("<4s2H3H3I2H", b"PK\3\4", 20, 0, *facts) + b"f" + content
    entry = struct.pack("<4s2H4H3I5H2I", b"PK\1\2", 0x31E, 20, 0, *facts, 0, 0, 0, mode << 16, 0) + b"f"
    return [local, entry, struct.pack("<4s2H2H2IH", b"PK\5\6", 0, 0, 1, 1, len(entry), len(local), 0)]


def tiny(count: int) -> bytes:
    """As many records as fit, of a key each."""
    return pax(b"x", *(b"%x=" % number for number in range(count)))


END = bytes(1024)
OUT = header(b"/out")
EMPTY = header(b"f")

GREEDY: dict[str, tuple[Callable[[], Iterable[bytes]], str]] = {
    "an xz with a dictionary of 2 GiB": (
        lambda: [xz_with_dictionary(header(b"f", b"%011o" % (300 * MEGA)) + bytes(300 * MEGA) + END, 31)],
        "to unpack its xz takes more than 80 MiB",
    ),
    "a second xz with such a dictionary": (lambda: [lzma.compress(EMPTY), xz_with_dictionary(EMPTY + END, 31)],
     "to unpack its xz takes more than 80 MiB"),
    "more members than may be": (lambda: [gzip.compress(EMPTY * 510_000 + END, 1)],
     "'f': it is one of more than 500,000 members"),
    "directories that nobody counts": (
        lambda: [gzip.compress(b"".join(header(b"%d" % n + b"/a" * 45 + b"/f") for n in range(12_000)), 1)],
        "with it there are more than 500,000 files and directories",
    ),
    "as many members as may be, with long paths": (lambda: [gzip.compress(many(480_000, 80) + OUT, 1)],
     "'/out' is absolute"),
    "paths of more than a byte for each letter": (
        lambda: [gzip.compress(b"".join(pax(b"x", b"path=" + "\U0001f600".encode() * 20 + b"/%0200d" % n) + EMPTY
                                        for n in range(120_000)), 1)],
        "with it the archive's paths take more than 96 MiB of memory",
    ),
    "links that lead a long way": (
        lambda: [gzip.compress(b"".join(
            pax(b"x", b"linkpath=" + b"a/../" * 95 + (b"l%d" % (n - 1) if n % 38 else b"f"))
            + header(b"l%d" % n, kind=b"2")
            for n in range(20_000)), 1)],
        "takes more than 2,000,000 steps",
    ),
    "extended headers of 100,000 records": (lambda: [gzip.compress(tiny(100_000) * 20, 1)], "headers"),
    "members with large headers": (lambda: [gzip.compress((tiny(90_000) + EMPTY) * 20, 1)],
     "its members' headers come to more than"),
    "a number of a million digits": (lambda: [gzip.compress(pax(b"x", b"size=" + b"9" * 1_000_000) + EMPTY)],
     "can't be read"),
    "a map of holes in the wrong order": (
        lambda: [gzip.compress(pax(
            b"x", b"GNU.sparse.size=50000",
            b"GNU.sparse.map=" + b",".join(b"%d,1" % n for n in range(40_000, 0, -1)),
        ) + header(b"f", b"%011o" % 40_000) + bytes(40_448) + END)],
        "a map of holes in it is out of order",
    ),
    "a member that is before itself": (lambda: [header(b"f", b"\xff" * 10 + b"\xf0\0", b"S") + END],
     "can't be unpacked"),
    "a gigabyte behind the end": (lambda: [gzip.compress(EMPTY + END, 1)] + [gzip.compress(bytes(100 * MEGA), 1)] * 11,
     "behind its end"),
    "a bzip2 of nothing but streams": (lambda: [bz2.compress(EMPTY)] + [bz2.compress(b"")] * 20_000, ""),
    "a gzip of nothing but members": (lambda: [gzip.compress(EMPTY)] + [gzip.compress(b"")] * 50_000, ""),
    "a zip with a large directory": (lambda: directory(150_000, 100), "its directory has 21,900,000 bytes, more than"),
    "a zip with a large directory, the long way": (lambda: directory(150_000, 100, wide=True), "its directory has"),
    "a zip with many members": (lambda: directory(ZIP_MEMBERS + 1, 30),
     "its directory has 100,001 members, more than 100,000"),
    "a zip that claims to have one member": (lambda: directory(300_000, 8, claimed=1),
     "its directory has 300,000 members"),
    "a zip with names of four bytes for each letter": (lambda: directory(97_000, 115, mark="😀".encode()),
     "the names in its directory take 44,620,000 bytes"),
    "a zip with as many members as may be": (lambda: directory(ZIP_MEMBERS, 80, 40), ""),
    "a zipped link that is longer than it says": (lambda: one_zipped(deflated(bytes(300 * MEGA)), 10, mode=0o120777),
     "can't be unpacked"),
    "a zipped file that is longer than it says": (lambda: one_zipped(deflated(bytes(300 * MEGA)), 10),
     "can't be unpacked"),
    "a bzip2 in a zip": (lambda: one_zipped(bz2.compress(bytes(9 * MEGA)), 1000, 12),
     "'f': it is packed by zip's method 12"),
    "an lzma in a zip": (lambda: one_zipped(b"\x09\x04\5\0\x5d\0\0\0\x70" + bytes(99), 1000, 14), "zip's method 14"),
}  # fmt: skip


@pytest.mark.parametrize("name", GREEDY)
def test_memory_is_bounded_and_nothing_is_written_for_a_refusal(
    name: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    make, says = GREEDY[name]
    said, peak = unpacked(make(), tmp_path, environ)
    print(f"{peak / MEGA:.0f} MiB: {said}")
    assert peak < MEMORY, said
    if says:
        assert isinstance(said, str) and said.startswith("71: sourcedir.tar.gz") and says in said
        assert "refused" not in said or list((tmp_path / "code").iterdir()) == []
