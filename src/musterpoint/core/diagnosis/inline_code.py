"""What ended a program whose Python stands in a shell script: its exception, or what the script printed behind it.

Nothing tells how such a script goes on, as its text is in no file that a traceback names.
"""

from __future__ import annotations

import re

from musterpoint.core.diagnosis.last_words import Error, error_line, is_ordinary, last_words
from musterpoint.core.diagnosis.launchers_table import RAISED
from musterpoint.core.diagnosis.traceback import Line

_REPORTS = re.compile(
    r"(?i)\bexit(?:ed|ing)? (?:code|status|with)\b|\bexit \d|\bnon-?zero\b|\breturned \d|\b(?:on|at|near) line \d"
    r"|\b(?:train\w*|job|run|script|command|python\S*|program|process|launch\w*|it|step) "
    r"(?:(?:has|was|have) )?(?:fail|crash|abort|die|end|exit|kill|terminat|stop)\w*|\bsee (?:above|the log)"
    r"|make: \*\*\* "
)
"""What tells of the exception once more: of a shell's ``trap … ERR``, of ``make``."""
_CLOSES = re.compile(
    r"(?i)\b(?:clean\w*|clos\w+|done|finish\w*|complet\w+|bye|stop\w*|shut\w*|sync\w*|upload\w*|sav(?:ed|ing)|remov\w+"
    r"|releas\w+|delet\w+|giv\w+ up|tear\w*|flush\w*|copy\w*|copied|archiv\w*|exit\w*|end(?:ed|ing)?|fail\w*|crashed"
    r"|kill\w*|real|user|sys|pagefaults|elapsed|duration|took|total|report\w*|log(?:s|ged)?)\b"
)
"""What a ``trap … EXIT``, or ``time``, prints when the program has ended, however it did."""
_TRACE = re.compile(r"\++ ")
"""What ``set -x`` puts before a command."""
_COMPLAINS = re.compile(
    r"(?i)\b(?:no|not|cannot|without|missing|empty|must|needs?|expected|invalid|unknown|unsupported|bad|wrong|too|only"
    r"|mismatch|corrupt\w*|unable|differs?|required?|exceeds?|less|fewer|more|another|truncated|failed to|out of|denied"
    r"|refused|doesn.t|isn.t|aren.t|can.t|don.t)\b"
)
"""Words of a text that tells why a program can't go on."""


def words_behind_inline_code(lines: list[Line], status: int | None, apart: bool) -> Error | None:
    """What ended the script by ``lines``, which came behind an exception of its Python; None: that exception did.

    ``status`` is as in ``RankEnd``; ``apart``: the lines are of its stderr alone. What only closes, or tells of the
    exception once more, may come from a trap. Another exit code than that of an exception is the script's own.
    """
    lines = [line for line in lines if not _TRACE.match(line.text)]
    told = [line for line in lines if is_ordinary(line.text) and not _REPORTS.search(line.text)]
    went_on = [line for line in told if not _CLOSES.search(line.text) or _COMPLAINS.search(line.text)]
    error = error_line([line for line in lines if not _REPORTS.search(line.text)])
    if not went_on:
        return error if error is not None and error.kind == "line" else None
    said = last_words(lines) if status in RAISED else None
    first = said.text.partition("\n")[0] if said is not None else ""
    said = None if _REPORTS.search(first) else said
    if said is not None and _COMPLAINS.search(first):
        return said
    if error is not None and error.kind == "line":
        return error
    if said is not None:
        return said if not _CLOSES.search(first) and (apart or len(went_on) > 1) else None
    return error if status not in RAISED and status is not None else None
