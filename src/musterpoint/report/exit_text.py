"""What a program gave to ``sys.exit``: the line that its source announces, whatever was printed behind it at exit."""

from __future__ import annotations

import os
import re
from typing import Callable, Iterator

from musterpoint.report.traceback import MESSAGE_LINES, Line

MOST_FILES = 100
"""Python files of a directory that are looked at."""
_SHORTEST = 6
"""Characters that a text has to begin with to be known again."""
_CALL = re.compile(r"\b(?:exit|SystemExit)\(\s*[rRfF]{0,2}(?P<quote>\"\"\"|'''|\"|')(?P<text>[^\"'{%\\\n]+)")


def find(lines: list[Line], directory: str, source: Callable[[str], str | None]) -> str:
    """The last of ``lines`` that a program in ``directory`` may have given to ``sys.exit``, with the indented ones
    behind it; empty where there is none. ``source`` gives the text of a file.
    """
    heads = tuple({head for name in _programs(directory) for head in _heads(source(name) or "")})
    for index in range(len(lines) - 1, -1, -1) if heads else ():
        if lines[index].text.startswith(heads):
            said = [lines[index].text]
            for line in lines[index + 1 : index + MESSAGE_LINES]:
                if not line.text[:1].isspace() or not line.text.strip():
                    break
                said.append(line.text)
            return "\n".join(text.strip() for text in said)
    return ""


def _heads(source: str) -> Iterator[str]:
    for call in _CALL.finditer(source):
        if len(call["text"].strip()) >= _SHORTEST:
            yield call["text"].rstrip()


def _programs(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(".py"))[:MOST_FILES]
    except OSError:
        return []
