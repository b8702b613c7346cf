"""The fenced blocks of the documentation, and what the comment in front of each says is done with it.

A block of shell commands, or of text, has a comment; a block of Python, JSON, YAML or TOML may have one:

``<!-- runs -->``
    It is run, in an empty directory, with the packages that the page's ``pip install`` lines above it name and no
    others. More words, after commas: ``code 1``: what its last command ends with. ``goes on``: in the directory and
    after the block before. ``with train.py``: with that file of ``tests/docs/reader``. ``with examples``: with the
    directory ``examples`` of the checkout. ``on node-1``: on a host of that name, at once with its neighbours.
    ``slow``: only in ``scripts/docs --run``.
``<!-- output -->``
    Every line of it is one that the run before printed; numbers with a point and names of jobs may differ, lines ``…``
    stand for any, and a line that ends with ``…`` goes on.
``<!-- installs -->``
    Its ``pip install`` is what the reader has from there on.
``<!-- runs in hosts/test_NAME.py -->``
    That test, below ``tests``, runs it.
``<!-- not run: WHY -->``
    What it needs isn't here. Commands of ``muster`` in it are parsed, and files that it names exist.
``<!-- sample: WHERE FROM -->``
    Output of something that isn't run here. Words of musterpoint in it are in its source.

Any other comment is a name by which a test finds the block.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, Literal, NamedTuple, get_args

ROOT = Path(__file__).resolve().parents[2]
READER = Path(__file__).parent / "reader"
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("examples/**/*.md")),
    ROOT / "container" / "README.md",
    ROOT / "deploy" / "README.md",
    ROOT / "docker" / "README.md",
)
Kind = Literal["runs", "runs in", "output", "installs", "not run", "sample", "named", ""]
Language = Literal["sh", "python", "json", "yaml", "toml", "dockerfile", "text", ""]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)$")
MARK = re.compile(r"^ *<!-- (?P<text>.+) -->$")


class Block(NamedTuple):
    """A block of ``page`` (below the checkout) whose fence is on ``line``; ``how`` are the comment's words."""

    page: str
    line: int
    language: str
    text: str
    kind: Kind
    how: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def said(self, name: str) -> list[str]:
        """The words after ``name`` in the comment, for each time that it is there."""
        return [word.removeprefix(name).strip() for word in self.how if word == name or word.startswith(f"{name} ")]

    @property
    def code(self) -> int:
        return int((self.said("code") or ["0"])[0])


def blocks() -> list[Block]:
    """Every block of every page, in the order of the page."""
    return [block for page in PAGES if page.exists() for block in blocks_of(page)]


def blocks_of(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").split("\n")
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        assert fence or "```" not in lines[at], f"{page}:{at + 1}: {lines[at]!r} is no fence that the tests can read"
        if fence is None:
            at += 1
            continue
        end = next(later for later in range(at + 1, len(lines)) if lines[later].strip() == "```")
        mark = MARK.match(lines[at - 1]) if at else None
        kind, how = kind_of(mark["text"] if mark else "")
        text = "".join(line.removeprefix(fence["indent"]) + "\n" for line in lines[at + 1 : end])
        yield Block(str(page.relative_to(ROOT)), at + 1, fence["language"], text, kind, how)
        at = end + 1


def kind_of(mark: str) -> tuple[Kind, tuple[str, ...]]:
    """What a comment's text says, and its other words."""
    if mark.startswith("runs in "):
        return "runs in", (mark.removeprefix("runs in "),)
    first, *more = (word.strip() for word in mark.split(","))
    if first in ("runs", "output", "installs"):
        return first, tuple(more)  # type: ignore[return-value]
    for kind in ("not run", "sample"):
        if mark.startswith(f"{kind}: "):
            return kind, (mark.removeprefix(f"{kind}: "),)  # type: ignore[return-value]
    return ("named", (mark.partition(":")[0],)) if mark else ("", ())


LANGUAGES = get_args(Language)
