"""The error of a command line that a program didn't understand, as parsers of options print it."""

from __future__ import annotations

import re

from musterpoint.core.diagnosis.last_words import error_line
from musterpoint.core.diagnosis.launchers_table import RAISED
from musterpoint.core.diagnosis.traceback import Line

BAD_USAGE = 2
"""The exit code after a wrong argument: argparse's, click's, that of Python and of shells."""
_USAGE = re.compile(r"\s*(?:usage|Usage|USAGE):")
_PARSER = re.compile(r"(?:[\w./+-]+(?: [\w.-]+)*: )?error: (?![\d.]+$)")
"""How argparse, optparse and jsonargparse begin it. The name of a subcommand may stand behind the program's."""
_FLAGS = re.compile(r"FATAL Flags parsing error:$")
"""absl's; which flag it is stands in the next line."""
_READER = re.compile(
    r"\S*python\S*: can't open file |Unknown option: -"
    r"|\S+: (?:line )?\d+: .*(?:[Ss]yntax error|unbound variable|parameter not set|[Bb]ad substitution)"
)
"""What an interpreter says of its own arguments, and a shell of a script that it can't read."""


def usage_error(lines: list[Line], status: int | None) -> str:
    """The usage error among ``lines``, which a program printed behind a traceback; empty: there is none.

    ``status`` is as in ``RankEnd``. Only absl ends with the code of an exception; its words are like nobody else's.
    """
    texts = [line.text.rstrip() for line in lines]
    for at in reversed(range(len(texts))):
        if _FLAGS.match(texts[at]):
            return "\n".join(text.strip() for text in texts[at : at + 2])
    if status is None or status <= 0 or status in RAISED:
        return ""
    for text in reversed(texts):
        if status == BAD_USAGE and (_PARSER.match(text) or _READER.match(text)):
            return text.strip()
    usage = next((at for at, text in enumerate(texts) if _USAGE.match(text)), None)
    if usage is None:
        return ""
    said_of_it = error_line(lines[max(0, usage - 1) :])  # fire prints its error before the usage, others behind it
    return said_of_it.text if said_of_it is not None and said_of_it.kind == "line" else ""
