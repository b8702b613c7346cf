"""Channels in Pipe mode: a named pipe for each epoch, fed with the channel's objects as fast as the program reads.

The names and the RecordIO framing are SageMaker's: ``CHANNEL_0`` is read to its end, then ``CHANNEL_1`` is there.
Runs in a Python that may not have musterpoint.
"""

from __future__ import annotations

import json
import os
import random
import re
import stat
import struct
import threading
import zlib
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

_MAGIC = 0xCED7230A
_REFERENCE = "-ref"
"""An attribute of an augmented manifest with such a name is an object's URI."""


class Part(NamedTuple):
    """One part of what is read: an object by its URI or name, or data that is here already."""

    uri: str = ""
    data: bytes = b""


class Piped(NamedTuple):
    """A channel: its parts in order, and how they are changed on their way.

    ``records``: each part is a RecordIO record. ``gzip``: they are unpacked. ``seed``: the order of each epoch is drawn
    from it; None: it stays.
    """

    parts: Sequence[Part]
    records: bool
    gzip: bool
    seed: int | None


Open = Callable[[str], Iterator[bytes]]
"""The content of an object, in pieces."""


class Pipe:
    """Feeds one channel of one host, in a thread of its own, until the process ends.

    Where the channel can't be read, ``failed`` is called with the reason, and the program sees no end of it.
    """

    def __init__(self, path: str, piped: Piped, opened: Open, failed: Callable[[Exception], None]) -> None:
        self._path, self._piped, self._opened, self._failed = path, piped, opened, failed
        remove(path)
        os.mkfifo(f"{path}_0")
        threading.Thread(target=self._feed, name=f"pipe {os.path.basename(path)}", daemon=True).start()

    def _feed(self) -> None:
        epoch = 0
        while True:
            with open(f"{self._path}_{epoch}", "wb", buffering=0) as pipe:
                os.mkfifo(f"{self._path}_{epoch + 1}")  # there before the end of this one is seen
                try:
                    for data in stream(self._piped, epoch, self._opened):
                        view = memoryview(data)
                        while view:
                            view = view[pipe.write(view) :]
                except BrokenPipeError:
                    pass  # the program has read enough of this epoch
                except Exception as error:
                    self._failed(error)
                    threading.Event().wait()  # an end of the pipe would be the end of the data
            epoch += 1


def remove(path: str) -> None:
    """Removes the pipes of a channel, those of an earlier attempt."""
    folder, name = os.path.split(path)
    for each in os.scandir(folder):
        if re.fullmatch(re.escape(name) + r"_\d+", each.name) and stat.S_ISFIFO(each.stat().st_mode):
            os.unlink(each.path)


def stream(piped: Piped, epoch: int, opened: Open) -> Iterator[bytes]:
    """What is read in the epoch, in pieces."""
    parts = list(piped.parts)
    if piped.seed is not None:
        random.Random(piped.seed + epoch).shuffle(parts)
    for part in parts:
        pieces = opened(part.uri) if part.uri else iter((part.data,))
        if piped.gzip:
            pieces = _unpacked(pieces)
        if piped.records:
            yield record(b"".join(pieces))
        else:
            yield from pieces


def record(data: bytes) -> bytes:
    """``data`` as one RecordIO record."""
    return struct.pack("<II", _MAGIC, len(data)) + data + bytes(-len(data) % 4)


def _unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    decoder = zlib.decompressobj(wbits=31)
    for piece in pieces:
        rest = piece
        while rest:
            yield decoder.decompress(rest)
            rest = decoder.unused_data
            if decoder.eof:  # archives one after the other
                decoder = zlib.decompressobj(wbits=31)


def of_augmented_manifest(text: str, attributes: Sequence[str]) -> list[list[Part]]:
    """The parts of an augmented manifest, line by line: its attributes in the order asked for.

    Raises:
        ValueError, LookupError or TypeError: a line isn't a JSON object with all of them.
    """
    found = []
    for line in text.splitlines():
        if line.strip():
            entry: Mapping[str, Any] = json.loads(line)
            found.append([_part(name, entry[name]) for name in attributes])
    return found


def _part(name: str, value: Any) -> Part:
    if name.endswith(_REFERENCE):
        return Part(uri=str(value))
    return Part(data=value.encode() if isinstance(value, str) else json.dumps(value).encode())
