"""What a library in C or C++ said before it called ``abort()``: faulthandler tells only that it did.

Sources of the texts: libstdc++'s ``vterminate.cc``, libc++abi's ``cxa_default_handlers.cpp``, glibc's ``malloc.c``,
``assert.c`` and ``fortify_fail.c``, glog's and Abseil's fatal lines, torch's own (``c10/util/Logging.cpp``), LLVM's
``kmp_i18n.cpp`` (OpenMP).
"""

from __future__ import annotations

import itertools
import re

from musterpoint.core.diagnosis.traceback import Line

NEAR = 40
"""Lines, C++ frames apart, within which the words stand before what tells of the abort."""
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<type>.+)'$")
_WHAT = re.compile(r"\s*what\(\): *(?P<text>.*)")
_LIBCXX = re.compile(r"libc\+\+abi: terminating (?:due to|with) uncaught exception of type (?P<words>.+)")
_C10 = re.compile(
    r"(?:\[rank\d+\]:)?\[(?P<level>[EF])\d{3,4} \d\d:\d\d:[\d.]+ [\w.]+:\d+\] "
    r"(?P<group>\[PG ID [^\]]*\] )?(?:(?P=group) *)?(?P<words>.+)"
)
"""A line of torch's own log: the month's number has one digit or two, and a process group names itself up to twice."""
_ASSERTED = re.compile(
    r".+: \S*\bAssertion `.*' failed\.$|F\d{4} \d\d:\d\d:.+\] .+|.*\bCheck failed: |OMP: Error #\d+: "
    r"|(?:free|malloc|realloc|calloc|munmap_chunk)\(\): |double free or corruption|corrupted (?:size|double-linked)"
    r"|\*\*\* .+ \*\*\*: terminated"
)


def thrown(lines: list[Line], at: int) -> str:
    """Type and message of the C++ exception that ended a program, by ``lines[at]``; empty: it is no such line."""
    text = lines[at].text.strip()
    if said := _LIBCXX.match(text):
        return said["words"]
    name = _THROWN.match(text)
    if name is None:
        return ""
    following = (_WHAT.match(line.text) for line in itertools.islice(lines, at + 1, at + 3))
    what = next((said["text"] for said in following if said is not None), "")
    return what if what.startswith(name["type"]) else f"{name['type']}: {what}".rstrip(": ")


def words_of(text: str) -> str:
    """What a line says, without what torch's log or the C++ library puts before it."""
    if said := _C10.match(text):
        return said["words"].strip()
    said = _WHAT.match(text)
    return said["text"] if said else text


def _fatal(text: str) -> str:
    """The words of a fatal line of torch's log."""
    said = _C10.match(text)
    return said["words"].strip() if said and said["level"] == "F" else ""


def said_before(lines: list[Line], number: int) -> str:
    """The words of the abort that a crash at line ``number`` tells of; empty: there are none."""
    before = [line for line in lines if line.number < number and not line.text.startswith("frame #")][-NEAR:]
    for at in reversed(range(len(before))):
        text = before[at].text.strip()
        if words := thrown(before, at) or _fatal(text) or (text if _ASSERTED.match(text) else ""):
            return words
    return ""
