"""The pairs of docs/migration.md: what is typed with another launcher, and with ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migration.md"
SAID = re.compile(r"rank \d of \d with \[.*?\]")


class Pair(NamedTuple):
    there: str
    here: str


def pairs(test: str) -> dict[str, Pair]:
    """Those that the page says run in ``test``, by the command that is typed there."""
    pair = re.compile(
        rf"^<!-- runs in hosts/{re.escape(test)} -->\n```sh\n(?P<there>\S.*?) +# there\n(?P<here>\S.*?) +# here\n```$",
        re.MULTILINE,
    )
    found = [Pair(each["there"], each["here"]) for each in pair.finditer(PAGE.read_text())]
    return {each.there.split()[0]: each for each in found}


def said(output: str) -> list[str]:
    """What the ranks of a command said, by rank."""
    return sorted(SAID.findall(output))
