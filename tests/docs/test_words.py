"""The documentation's English: short sentences, and no words that only the project's authors know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .blocks import PAGES, ROOT

BANNED = (
    "the road", "## with less", "what is found there", "wherever it occurs", "an echo", "is a delight", "truth about",
    "falls off the bus", "nothing flows back", "hereby", "therein", "thereof", "whosoever", "heeds",
)  # fmt: skip
"""Private words, metaphors and phrases that a stranger has to read twice. A page says the plain thing instead."""
LONGEST, LONGEST_OF_QUICKSTARTS = 45, 30
"""Words in a sentence, or in a part of it before a colon or semicolon."""
TABLE_OR_HEADING = ("|", "#")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page's paragraphs and lists; what is code, and where links lead, counts as one word."""
    text = re.sub(r"^ *```.*?^ *```", "\n\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.))", text):
        if not part.lstrip().startswith(TABLE_OR_HEADING):
            part = re.sub(r"`[^`]*`", "x", re.sub(r"\]\([^)]*\)", "]", part))
            yield from filter(None, map(str.strip, re.split(r"(?<=[.:!?;])\s+", part.replace("\n", " "))))


def words_of(page: Path) -> str:
    return re.sub(r"\s+", " ", page.read_text(encoding="utf-8")).lower()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.exists()], ids=lambda page: str(page.relative_to(ROOT))
)
def test_plain_words_and_short_sentences(page: Path) -> None:
    text = words_of(page)
    assert [phrase for phrase in BANNED if re.search(rf"(?<!\w){phrase}\b", text)] == []
    most = LONGEST_OF_QUICKSTARTS if page.parent.name == "quickstart" else LONGEST
    assert [each for each in sentences(page.read_text(encoding="utf-8")) if len(each.split()) > most] == []


def test_a_long_sentence_is_seen() -> None:
    long = " ".join(["word"] * 50)
    assert [len(each.split()) for each in sentences(f"Short one. {long}.\n\n| {long} |\n\n```text\n{long}\n```\n")] == [
        2,
        50,
    ]
