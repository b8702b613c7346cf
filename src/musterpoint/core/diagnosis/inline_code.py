"""What ended a program whose Python stands in a shell script: its exception, or what the script printed behind it.

Nothing tells how such a script goes on, as its text is in no file that a traceback names.
"""

from __future__ import annotations

import re
from collections import Counter

from musterpoint.core.diagnosis.last_words import Error, error_line, is_ordinary, last_words
from musterpoint.core.diagnosis.launchers_table import RAISED
from musterpoint.core.diagnosis.message_lines import shape_of
from musterpoint.core.diagnosis.traceback import Line

_REPORTS = re.compile(
    r"(?i)\bexit(?:ed|ing)? (?:code|status|with)\b|\bexit \d|\bnon-?zero\b|\breturned \d"
    r"|\b(?:on|at|near|error:?) line:? ?\d|\bcommand\b.* failed\b"
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
_NOTHING = re.compile(
    r"(?i)\b(?:no|not|nothing)\b.* to (?:\w+ )?(?:clean|clos|sync|upload|save|remov|releas|delet|flush|copy)"
)
"""Among those, what there was nothing to close of."""
_NOT_FOUND = re.compile(r"\S+: (?:line )?\d+: .+: (?:command )?not found$")
"""A shell's word that ends a script with 127, or with the code of something else."""
_TABLE = re.compile(r"[-dl][-rwx]{9}|(?:.*\s\d[\w.,]*%?){3}")
"""A row that ``ls``, ``df`` or ``free`` prints."""
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
    shapes = Counter(shape_of(line.text) for line in lines)
    lines = [line for line in lines if not (_TRACE.match(line.text) or _REPORTS.search(line.text))]
    if status in RAISED:
        lines = [line for line in lines if not _NOT_FOUND.search(line.text)]
    error = error_line(lines)
    error = error if error is not None and (error.kind == "line" or status not in (None, *RAISED)) else None
    went_on = [at for at, line in enumerate(lines) if is_ordinary(line.text) and not _only_closes(line.text)]
    last = next((at for at in reversed(went_on) if shapes[shape_of(lines[at].text)] == 1), None)
    if last is None or status not in RAISED:
        return error if went_on or (error is not None and error.kind == "line") else None
    behind = error_line(lines[last + 1 :])
    if behind is not None and behind.kind == "line":
        return behind
    said = last_words(lines[: last + 1])
    if said is not None and _COMPLAINS.search(said.text.partition("\n")[0]):
        return said
    # a word more may be anything, also a trap's; behind other output it is the script's
    return error or (said if (apart or went_on[0] < last) and not _TABLE.match(lines[last].text) else None)


def _only_closes(text: str) -> bool:
    return _CLOSES.search(text) is not None and (_NOTHING.search(text) is not None or not _COMPLAINS.search(text))
