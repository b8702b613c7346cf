"""Archives of code: crafted and mutated tars and zips, unpacked by processes with a bound on their memory.

What must hold: an archive is unpacked, all of it inside its directory, or refused by a MusterError of one line; never
another exception, never more than 200 MB of memory or some seconds of work. What was not tampered with is let in whole.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import re
import resource
import shutil
import stat
import struct
import tarfile
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from fuzzers.findings import MOST_WRONG, Findings

BATCH = 50
MEMORY = 200_000_000
SECONDS = 10.0
"""Of work, not of waiting: other processes may keep the machine busy."""

Contents = dict[str, bytes]

NAMES = (
    "train.py", "lib/part.py", "lib", "lib/", "./x", ".", "./", "", "/", "//", "..", "../outside/new",
    "a/../../outside/new", "/tmp/musterpoint-fuzz", "//etc/x", "..\\outside", "C:\\x", "C:x", "x\0y", "link/x", "link",
    "lib/link/x", "n" * 255, "n" * 256, "d/" * 199 + "x", "d/" * 201 + "x", "d/" * 2100 + "x",
    "p" * 120 + "/" + "q" * 120, "\u00e4\u4e2d\U0001f600.py", "caf\udce9", "new\nline", "\x1b[2J", "-rf", "~root", " ",
    "...", "outside", "packed", "a" * 5000,
)  # fmt: skip
FOLDERS = ("", "", "", "lib/", "lib/x/", "link/")
TARGETS = (
    "train.py", ".", "..", "../outside", "../outside/secret", "lib/..", "lib/../..", "link", "link/..", "/",
    "/etc/passwd", "", "x/" * 300, "link/" * 60, "../code/x", "nowhere", "lib/link/../../outside", "\0", "t" * 5000,
)  # fmt: skip
KINDS = (tarfile.REGTYPE,) * 20 + (
    tarfile.DIRTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE,
    tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"L", b"K", b"x",
    b"g", b"X", b"V", b"M", b"D", b"Z",
)  # fmt: skip
NUMBERS = (
    b"00000000000\0", b"77777777777\0", b"\x80" + bytes(11), b"\xff" * 12, b"\x80" + b"\xff" * 11,
    b"\xff" * 10 + b"\xf0\0", b" " * 12, b"-0000000001\0", b"9999999999\0\0", bytes(12), b"00000001000\0",
    b"00004000000\0", b"0x1_000\0\0\0\0\0",
)  # fmt: skip
RECORDS = (
    "path=../outside/new", "path=", "path=/x", "path=a\0b", "linkpath=../outside", "size=-1",
    "size=99999999999999999999", "size=1", "size=1e3", "mtime=nan", "mtime=-1e400", "mtime=x", "GNU.sparse.major=1",
    "GNU.sparse.minor=0", "GNU.sparse.realsize=9999999999", "GNU.sparse.realsize=10", "GNU.sparse.map=5,1,0,5",
    "GNU.sparse.map=0,10", "GNU.sparse.map=1", "GNU.sparse.size=10", "GNU.sparse.offset=5", "GNU.sparse.numbytes=3",
    "GNU.sparse.numblocks=99999", "GNU.sparse.name=../outside/new", "hdrcharset=BINARY", "uid=" + "1" * 5000,
    "SCHILY.xattr.user.x=" + "v" * 3000,
)  # fmt: skip
PACKERS: tuple[Callable[[bytes], bytes], ...] = (
    bytes, lambda data: gzip.compress(data, 1), lambda data: bz2.compress(data, 1),
    lambda data: lzma.compress(data, preset=0),
)  # fmt: skip


def fuzz(seed: int, inputs: int) -> Findings:
    wrong: list[str] = []
    tried = 0
    with tempfile.TemporaryDirectory(prefix="muster-fuzz-") as folder:
        while tried < inputs and len(wrong) < MOST_WRONG:
            count = min(BATCH, inputs - tried)
            wrong += batch(Path(folder), seed, range(tried, tried + count))
            tried += count
    return Findings(tried, tuple(wrong[:MOST_WRONG]))


def batch(folder: Path, seed: int, numbers: range) -> list[str]:
    """What went wrong with these inputs, in a process whose end is a finding, too."""
    report = folder / "report"
    report.write_text("")
    child = os.fork()
    if not child:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
            resource.setrlimit(resource.RLIMIT_AS, (4 * 1024**3, 4 * 1024**3))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with report.open("w") as file:
                for number in numbers:
                    file.write(json.dumps([number, None]) + "\n")
                    file.flush()
                    found = one(folder, random.Random(f"{seed} {number}"))
                    file.write(json.dumps([number, found]) + "\n")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    wrong = [f"input {number} of seed {seed}: {text}" for number, found in lines for text in found or ()]
    if status:
        wrong.append(f"input {lines[-1][0] if lines else '?'} of seed {seed} ended the process with {status}")
    return wrong


def one(folder: Path, dice: random.Random) -> list[str]:
    """What went wrong with one input."""
    from musterpoint.base.errors import MusterError
    from musterpoint.core.code.archive import Limits, said_of, unpack

    made, data, whole = made_archive(dice)
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    code = place / "code"
    code.mkdir(parents=True)
    (place / "outside" / "folder").mkdir(parents=True)
    (place / "outside" / "secret").write_text("as it was")
    (place / "packed").write_bytes(data)
    before = state(place, code)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the most memory is counted anew
    began = time.process_time()
    wrong = []
    try:
        found = unpack(
            str(place / "packed"), str(code), "packed", limits=Limits(20_000, 64 * 1024**2, 16 * 1024**2, 200)
        )
        said, left_out = "", said_of(found, "packed")
        if not left_out.isprintable() or len(left_out) > 3000:
            wrong.append(f"what is left out isn't told in a sentence: {left_out[:300]!r}")
    except MusterError as error:
        said = str(error)
    except Exception as error:
        said = ""
        wrong.append(f"{type(error).__name__}: {error}, at {traceback.extract_tb(error.__traceback__)[-1]}")
    seconds = time.process_time() - began
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024
    if seconds > SECONDS:
        wrong.append(f"it took {seconds:.1f} s of work, more than {SECONDS:.0f}")
    if peak > MEMORY:
        wrong.append(f"it took {peak:,} bytes of memory, more than {MEMORY:,}")
    if state(place, code) != before:
        wrong.append("something outside its directory was changed")
    if said and (not said.startswith("packed") or not said.isprintable() or len(said) > 1000):
        wrong.append(f"the refusal isn't a sentence about the archive: {said[:300]!r}")
    wrong += misplaced(code)
    if whole is not None:
        there = {str(path.relative_to(code)): path.read_bytes() for path in code.rglob("*") if path.is_file()}
        if said or there != whole:
            wrong.append(f"what was not tampered with isn't let in whole: {said or sorted(there)}")
    return [f"{made}: {text}" for text in wrong]


def state(place: Path, code: Path) -> list[tuple[str, int, float, bytes]]:
    """All that lies beside the directory."""
    found = []
    for path in sorted(place.rglob("*")):
        if path != code and code not in path.parents:
            facts = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(facts.st_mode) else b""
            found.append((str(path), facts.st_mode, facts.st_mtime, content))
    return found


def misplaced(code: Path) -> Iterator[str]:
    """What may not be in the directory."""
    root = os.path.realpath(code)
    for folder, folders, files in os.walk(code):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            facts = os.lstat(path)
            if stat.S_ISLNK(facts.st_mode):
                end = os.path.realpath(path)
                if end != root and not end.startswith(root + os.sep):
                    yield f"{path!r} is a link that leads out, to {end!r}"
            elif not stat.S_ISREG(facts.st_mode) and not stat.S_ISDIR(facts.st_mode):
                yield f"{path!r} is neither a file nor a directory nor a link"
            elif facts.st_mode & 0o7022:
                yield f"{path!r} has the mode {facts.st_mode:o}"


def made_archive(dice: random.Random) -> tuple[str, bytes, Contents | None]:
    """What was made, in words; its bytes; and what has to come out, where nothing is wrong with it."""
    way = dice.choice(("good", "tar", "tar", "tar", "tar", "zip", "zip", "headers"))
    pack = dice.randrange(len(PACKERS))
    if way == "good":
        contents = {
            f"d{dice.randrange(9)}/f{n}": dice.randbytes(dice.randrange(3000)) for n in range(dice.randrange(1, 9))
        }
        if dice.random() < 0.3:
            return "a good zip", zipped(list(contents.items())), contents
        form = dice.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
        entries = [entry(name, tarfile.REGTYPE, content) for name, content in contents.items()]
        return "a good tar", PACKERS[pack](tar(entries, form)), contents
    if way == "zip":
        data = zipped([(a_name(dice), dice.randbytes(dice.randrange(2000))) for _ in range(dice.randrange(8))], dice)
        return "a zip", mutated_zip(data, dice), None
    if way == "headers":
        data = b"".join(raw_member(dice) for _ in range(dice.randrange(1, 30))) + bytes(1024)
    else:
        entries = [crafted(dice) for _ in range(dice.randrange(12))]
        data = tar(entries, dice.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)))
    if dice.random() < 0.6:
        data = mutated_tar(data, dice)
    packed = PACKERS[pack](data)
    if dice.random() < 0.3:
        packed = mutated(packed, dice)
    return f"{way}, packing {pack}", packed, None


def a_name(dice: random.Random) -> str:
    """Mostly one that may be: what comes behind a member that may not be isn't looked at."""
    return dice.choice(NAMES) if dice.random() < 0.1 else f"{dice.choice(FOLDERS)}{dice.choice('abcde')}"


def a_target(dice: random.Random) -> str:
    return dice.choice(TARGETS) if dice.random() < 0.3 else dice.choice(("a", "b", "lib/a", "..", "../a", "../lib"))


def entry(name: str, kind: bytes, content: bytes = b"", target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname, info.mode = kind, len(content), target, 0o644
    return info, content


def crafted(dice: random.Random) -> tuple[tarfile.TarInfo, bytes]:
    kind = dice.choice(KINDS[:30])
    content = dice.randbytes(dice.choice((0, 1, 511, 512, 513, 5000))) if kind == tarfile.REGTYPE else b""
    info, content = entry(a_name(dice), kind, content, a_target(dice))
    info.mode, info.mtime = dice.randrange(0o10000), dice.choice((0, 1, 2**33, 1_700_000_000))
    return info, content


def tar(entries: list[tuple[tarfile.TarInfo, bytes]], form: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, errors="surrogateescape") as made:
        for info, content in entries:
            made.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def with_check_sum(block: bytearray) -> bytes:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def raw_member(dice: random.Random) -> bytes:
    """One header, byte for byte, and some content behind it."""
    kind = dice.choice(KINDS)
    content = b""
    if kind in b"xgX":
        content = b"".join(record(dice) for _ in range(dice.choice((1, 2, 5, 2000))))
    elif kind in b"LK":
        content = dice.choice(NAMES + TARGETS).encode("utf-8", "surrogateescape") * dice.choice((1, 1, 40))
    elif dice.random() < 0.5:
        content = dice.choice(
            (b"3\n0\n1\n5\n2\n9\n0\n", b"99999999\n" + b"1\n" * 3000, b"1" * 3000, dice.randbytes(700))
        )
    block = bytearray(512)
    name = a_name(dice).encode("utf-8", "surrogateescape")[:100]
    block[: len(name)] = name
    block[100:108] = dice.choice((b"0000644\0", b"0007777\0", b"\xff" * 8, b"garbage\0"))
    block[124:136] = b"%011o\0" % len(content) if dice.random() < 0.7 else dice.choice(NUMBERS)
    block[136:148] = dice.choice(NUMBERS)
    block[156:157] = kind
    target = a_target(dice).encode()[:100]
    block[157 : 157 + len(target)] = target
    block[257:265] = dice.choice((b"ustar\x0000", b"ustar  \0", bytes(8)))
    if kind == tarfile.GNUTYPE_SPARSE or dice.random() < 0.1:
        for at in range(386, 482, 12):
            block[at : at + 12] = dice.choice(NUMBERS)
        block[482] = dice.randrange(2)
        block[483:495] = dice.choice(NUMBERS)
    return with_check_sum(block) + content + bytes(-len(content) % 512)


def record(dice: random.Random) -> bytes:
    text = dice.choice(RECORDS).encode()
    if dice.random() < 0.1:
        return (
            dice.choice((b"9" * 30, b"5 a=", b"0 =\n", b"-5 a=b\n", b" \n", b"10 a=b\n", b"99999 a=b\n", b"\0")) + text
        )
    length = len(text) + 3
    while len(b"%d %s\n" % (length, text)) != length:
        length += 1
    return b"%d %s\n" % (length, text)


def mutated_tar(data: bytes, dice: random.Random) -> bytes:
    """Headers with other bytes in them and a check sum that fits; blocks that are gone, twice, or elsewhere."""
    blocks = [bytearray(data[at : at + 512]) for at in range(0, len(data), 512)]
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(blocks))
        way = dice.randrange(5)
        if way == 0 and len(blocks) > 1:
            del blocks[at]
        elif way == 1:
            blocks.insert(at, blocks[dice.randrange(len(blocks))])
        elif way == 2:
            blocks[at] = bytearray(raw_member(dice))
        elif len(blocks[at]) >= 512:
            headers = [block for block in blocks if block[257:262] == b"ustar" and len(block) >= 512]
            block = dice.choice(headers or blocks)
            field = dice.choice((0, 100, 108, 124, 136, 148, 156, 157, 257, 329, 345, 386, 483))
            new = dice.choice((dice.randbytes(dice.randrange(1, 13)), dice.choice(NUMBERS)))
            block[field : field + len(new)] = new
            if dice.random() < 0.9:
                block[:512] = with_check_sum(block[:512])
    return b"".join(blocks)


def zipped(entries: list[tuple[str, bytes]], dice: random.Random | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, content in entries:
            info = zipfile.ZipInfo("x")
            info.filename = name.encode("utf-8", "replace").decode()
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            if dice:
                info.compress_type = dice.choice((*(0, 8) * 9, 12, 14))
                kind = dice.choice((*(0, stat.S_IFREG, stat.S_IFLNK) * 6, stat.S_IFDIR, stat.S_IFCHR))
                info.external_attr = (kind | dice.randrange(0o10000)) << 16
                if stat.S_ISLNK(kind):
                    content = a_target(dice).encode()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a name that is there twice
                made.writestr(info, content)
    return buffer.getvalue()


def mutated_zip(data: bytes, dice: random.Random) -> bytes:
    """Other numbers in what a zip says of itself; or any other bytes."""
    if dice.random() < 0.4:
        return mutated(data, dice)
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4))):
        marks = [at.start() for at in re.finditer(rb"PK(\x01\x02|\x03\x04|\x05\x06)", bytes(found))]
        if not marks:
            break
        at = dice.choice(marks) + dice.randrange(4, 46)
        value = dice.choice((0, 1, 8, 12, 99, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, dice.getrandbits(32)))
        new = struct.pack("<I", value)[: dice.choice((1, 2, 4))]
        found[at : at + len(new)] = new
    return bytes(found)


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Bits flipped, bytes gone, cut short, or twice in a row."""
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 3, 20))):
        at = dice.randrange(len(found)) if found else 0
        way = dice.randrange(5)
        if way == 0 and found:
            found[at] ^= 1 << dice.randrange(8)
        elif way == 1:
            found[at : at + dice.randrange(1, 40)] = b""
        elif way == 2:
            found[at:at] = dice.randbytes(dice.randrange(1, 40))
        elif way == 3:
            del found[at:]
        else:
            found += found[at:]
    return bytes(found)
