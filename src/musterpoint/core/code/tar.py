"""Reads the members of a tar, forward only. The memory and the work that its headers can cost are bounded.

``tarfile`` sets no such bounds: some headers that fit in 1 MiB keep it busy for hours. Formats: POSIX's ``pax``, GNU
tar's manual ("Basic Tar Format", "Sparse Formats"), and those before them.
"""

from typing import Callable, Iterator

from musterpoint.core.code.archive_members import ArchiveMember, Kind
from musterpoint.core.code.packed import CHUNK, Packed, Packing

_BLOCK = 512
_LONGEST = 1024 * 1024
"""Bytes of one member's headers at most: names, attributes and maps of holes."""
_ALLOWANCE = 64 * 1024**2
_EACH = 4096
"""Bytes of all extended headers at most: :data:`_ALLOWANCE`, and this for each member."""
_RECORD = 64
"""What a line in a header counts, in bytes: it costs work too."""
_KINDS: dict[bytes, Kind] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"S": "file",
    b"1": "hard link",
    b"2": "symlink",
    b"5": "directory",
}
_OTHERS = {b"3": "a device", b"4": "a device", b"6": "a named pipe"}
_GNU = b"ustar "
_MAP = "GNU.sparse.map"
_WANTED = (
    b"path",
    b"linkpath",
    b"size",
    b"mtime",
    b"GNU.sparse.name",
    b"GNU.sparse.size",
    b"GNU.sparse.realsize",
    b"GNU.sparse.map",
    b"GNU.sparse.major",
)

Fields = dict[str, bytes]
"""What extended headers say about a member, by keyword."""
Holes = list[tuple[int, int]]
"""The pieces of a sparse file that have data: offset and length of each, in order."""


def tar_members(
    path: str, packing: Packing, name: str, most: int, poll: Callable[[], None] = lambda: None
) -> Iterator[ArchiveMember]:
    """The members of a tar of at most ``most`` bytes, headers included, that is packed with ``packing``.

    A member's content can be read only before the next member is asked for.
    """
    with Packed(path, packing, name, most, poll) as stream:
        yield from _Tar(stream)
        stream.finish()


class _Tar:
    def __init__(self, stream: Packed) -> None:
        self._stream = stream
        self._for_all: Fields = {}
        self._budget = _ALLOWANCE
        self._left = 0

    def __iter__(self) -> Iterator[ArchiveMember]:
        while (found := self._next()) is not None:
            member, size = found
            end = self._stream.at + size + -size % _BLOCK
            yield member
            if size < 0:
                raise ValueError("a member's size is below zero")
            self._stream.skip(end - self._stream.at)

    def _next(self) -> "tuple[ArchiveMember, int] | None":
        """The next member, and the bytes of its content in the archive."""
        self._left = _LONGEST
        self._budget += _EACH
        fields, extended = dict(self._for_all), False
        holes: Holes = []
        while block := self._header():
            kind, size = block[156:157], _number(block[124:136])
            if kind not in b"LKxgX":
                return self._member(block, kind, size, fields, holes)
            extended = True
            if size < 0:
                raise ValueError("a header in it has a size below zero")
            data = self._extended(size)
            if kind == b"L":
                fields["path"] = data.split(b"\0", 1)[0]
            elif kind == b"K":
                fields["linkpath"] = data.split(b"\0", 1)[0]
            else:
                pairs = self._records(data, self._for_all if kind == b"g" else fields)
                fields, holes = {**self._for_all, **fields}, pairs or holes
        if extended:
            raise EOFError("it ends behind a member's first header")
        return None

    def _header(self) -> bytes:
        """One header's block; empty at the end."""
        block = self._stream.read(_BLOCK)
        if not block:
            if not self._stream.at:
                raise EOFError("it is empty")
            return b""
        if len(block) < _BLOCK:
            raise EOFError("it ends in a header")
        if not block.strip(b"\0"):
            return b""
        if not has_check_sum(block):
            raise ValueError("a header in it can't be read")
        return block

    def _extended(self, size: int) -> bytes:
        """The content of an extended header."""
        padded = size + -size % _BLOCK
        self._spend(padded + _BLOCK)
        return b"".join(self._stream.pieces(padded))[:size]

    def _spend(self, size: int, cost: int = 0) -> None:
        self._left -= size
        self._budget -= size + cost
        if self._left < 0:
            self._stream.refuse(f"a member's headers in it come to more than {_LONGEST:,} bytes")
        if self._budget < 0:
            self._stream.refuse(
                f"its members' headers come to more than {_ALLOWANCE // 1024**2} MiB and {_EACH // 1024} KiB for each"
            )

    def _records(self, data: bytes, fields: Fields) -> Holes:
        """Adds an extended header's values to ``fields``; returns the holes of the oldest sparse format."""
        at, offset, holes = 0, 0, []
        while at < len(data) and data[at]:
            self._spend(0, _RECORD)
            space = data.find(b" ", at, at + 10)
            length = _decimal(data[at:space]) if space > 0 else 0
            end = at + length
            equals = data.find(b"=", space, end)
            if equals < 0 or end > len(data) or data[end - 1 : end] != b"\n":
                raise ValueError("an extended header in it can't be read")
            key, value = data[space + 1 : equals], data[equals + 1 : end - 1]
            if key in _WANTED:
                fields[key.decode()] = value
            elif key == b"GNU.sparse.offset":
                offset = _decimal(value)
            elif key == b"GNU.sparse.numbytes":
                holes.append((offset, _decimal(value)))
            at = end
        return holes

    def _member(
        self, block: bytes, kind: bytes, size: int, fields: Fields, holes: Holes
    ) -> "tuple[ArchiveMember, int]":
        member_kind = _KINDS.get(kind, "other")
        name = block[:100].split(b"\0", 1)[0]
        prefix = block[345:500].split(b"\0", 1)[0]
        if prefix and not block.startswith(_GNU, 257):
            name = prefix + b"/" + name
        name = fields.get("GNU.sparse.name") or fields.get("path") or name
        if kind == b"\0" and name.endswith(b"/"):
            member_kind = "directory"
        if member_kind != "file":
            stored = real = 0
        else:
            stored = real = _decimal(fields["size"]) if fields.get("size") else size
            if kind == b"S":
                holes, real = self._old_holes(block), _number(block[483:495])
            elif fields.get("GNU.sparse.major") == b"1":
                before = self._stream.at
                holes, real = self._holes_in_front(), _decimal(fields.get("GNU.sparse.realsize", b""))
                stored -= self._stream.at - before
            elif _MAP in fields:
                numbers = fields[_MAP].split(b",")
                self._spend(0, _RECORD * len(numbers))
                holes, real = _pairs(numbers), _decimal(fields.get("GNU.sparse.size", b""))
            elif holes:
                real = _decimal(fields.get("GNU.sparse.size", b""))
        content = self._stream.pieces
        if holes or real != stored:
            _check_holes(holes, real, stored)

        def pieces() -> Iterator[bytes]:
            return _with_holes(content, holes, real) if holes or real != stored else content(real)

        target = fields.get("linkpath") or block[157:257].split(b"\0", 1)[0]
        mode, modified = _number(block[100:108]), float(_number(block[136:148]))
        if "mtime" in fields:
            try:
                modified = float(fields["mtime"][:40])
            except ValueError:
                pass  # a wrong time is no reason to refuse the archive
        other = _OTHERS.get(kind, "of an unknown kind") if member_kind == "other" else ""
        return ArchiveMember(_text(name), member_kind, mode, real, _text(target), modified, pieces, other), stored

    def _old_holes(self, block: bytes) -> Holes:
        """GNU tar's first format: four pieces in the header, then blocks of 21."""
        holes: Holes = []
        at, count, more = 386, 4, block[482]
        while True:
            for place in range(at, at + 24 * count, 24):
                if block[place]:
                    holes.append((_number(block[place : place + 12]), _number(block[place + 12 : place + 24])))
            if not more:
                return holes
            self._spend(_BLOCK, _RECORD * 21)
            block = b"".join(self._stream.pieces(_BLOCK))
            at, count, more = 0, 21, block[504]

    def _holes_in_front(self) -> Holes:
        """Format 1.0: numbers in front of the content, one on each line; the first is how many pieces there are."""
        text, lines, wanted = bytearray(), 0, 1
        while lines < wanted:
            block = b"".join(self._stream.pieces(_BLOCK))
            found = block.count(b"\n")
            self._spend(_BLOCK, _RECORD * found)
            text += block
            if not lines and found:
                wanted += 2 * _decimal(bytes(text[: text.index(b"\n")]))
            lines += found
        return _pairs(bytes(text).split(b"\n")[1:wanted])


def has_check_sum(block: bytes) -> bool:
    """Whether a block of 512 bytes has a header's check sum, computed with unsigned or signed bytes."""
    try:
        stored = _number(block[148:156])
    except ValueError:
        return False
    rest = block[:148] + block[156:]
    found = sum(rest) + 8 * 32
    return stored == found or stored == found - 256 * sum(byte > 127 for byte in rest)


def _number(field: bytes) -> int:
    """A number in a header: octal digits, or binary where those are too few."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big") - (256 ** (len(field) - 1) if field[0] == 0xFF else 0)
    text = field.split(b"\0", 1)[0].strip()
    if not text:
        return 0
    if not text.isdigit():
        raise ValueError("a number in a header can't be read")
    return int(text, 8)


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 19:
        raise ValueError("a number in an extended header can't be read")
    return int(text)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _pairs(numbers: list[bytes]) -> Holes:
    if len(numbers) % 2:
        raise ValueError("a map of holes in it can't be read")
    values = [_decimal(number) for number in numbers]
    return list(zip(values[::2], values[1::2]))


def _check_holes(holes: Holes, real: int, stored: int) -> None:
    """Checks that the pieces are in order, inside the file, and as long as the stored data."""
    at = 0
    for offset, size in holes:
        if offset < at or size < 0:
            raise ValueError("a map of holes in it is out of order")
        at = offset + size
    if at > real or sum(size for _, size in holes) != stored:
        raise ValueError("a map of holes in it doesn't fit its file")


def _with_holes(content: Callable[[int], Iterator[bytes]], holes: Holes, real: int) -> Iterator[bytes]:
    nothing = bytes(CHUNK)
    at = 0
    for offset, size in [*holes, (real, 0)]:
        while at < offset:
            yield nothing[: offset - at]
            at += min(CHUNK, offset - at)
        yield from content(size)
        at += size
