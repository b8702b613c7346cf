"""Draws the page of ``muster plan``: two columns, wrapped to a terminal's width, with colours where it takes them."""

from __future__ import annotations

import textwrap
from typing import Iterable, NamedTuple, Sequence

from musterpoint.base.untrusted import escaped
from musterpoint.tools.plans.page import Block, HostPart, Page, PlanRow

_NARROW, _WIDE = 24, 44
"""Between these is the column of the reasons; after a longer text the reason follows directly."""
_COMMAND = 100
"""Columns of a command where lines may have any length."""
_BOLD, _CYAN, _YELLOW, _FAINT, _PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


class Style(NamedTuple):
    """How a page is drawn.

    width: the terminal's columns; None: lines may have any length.
    colour: whether it takes colours.
    column: where the reasons stand, behind the indent.
    """

    width: int | None = None
    colour: bool = False
    column: int = _WIDE


PLAIN = Style()


def draw(page: Page, style: Style = PLAIN) -> str:
    """The page as text that ends with a line end."""
    page = escaped(page)
    style = style._replace(column=_column(page, style))
    lines = _sentences(page.sentences, style)
    for host in page.hosts:
        lines += ["", *_host(host, style)]
    if page.left_out:
        lines += ["", *_wrapped(page.left_out, style, "", "  ")]
    if page.last is not None:
        lines += ["", *_block(page.last, style, "")]
    remarks = [("note: ", note, "") for note in page.notes]
    remarks += [("warning: ", warning, _YELLOW) for warning in page.warnings]
    for at, (head, text, shade) in enumerate(remarks):
        lines += [
            *([] if at else [""]),
            *(_shaded(line, shade, style) for line in _wrapped(head + text, style, "", "  ")),
        ]
    return "\n".join(lines) + "\n"


def _sentences(sentences: Sequence[str], style: Style) -> list[str]:
    first, *others = sentences
    lines = [_shaded(line, _BOLD, style) for line in _wrapped(first, style, "", "  ")]
    return lines + [line for each in others for line in _wrapped(each, style, "", "  ")]


def _host(host: HostPart, style: Style) -> list[str]:
    title = host.title
    if host.like:
        title += f"; as {host.like}, but for" if host.blocks else f"; as {host.like}"
    lines = [_shaded(line, _BOLD, style) for line in _wrapped(title, style, "", "  ")]
    for at, block in enumerate(host.blocks):
        lines += [*([""] if at and not host.like else []), *_block(block, style, "  ")]
    return lines


def _block(block: Block, style: Style, indent: str) -> list[str]:
    lines = _wrapped(block.title, style, indent, indent + "  ") if block.title else []
    if block.command:
        lines += ["", *_command(block.command, style, indent + "  ")]
        lines += [""] if block.rows else []
    return lines + _rows(block.rows, style, indent + "  ")


def _command(pieces: Sequence[Sequence[str]], style: Style, indent: str) -> list[str]:
    """Lines to copy into a shell: the directory, then the command, broken behind backslashes."""
    place, *rest = pieces
    lines, line = [], ""
    wide = (style.width or _COMMAND) - len(indent) - 2
    # a flag and its value stay on one line; the words of the program don't have to
    for piece in (part for each in rest for part in _split(each, wide - 2)):
        if line and len(line) + 1 + len(piece) > wide:
            lines.append(line + " \\")
            line = "  " + piece
        else:
            line = f"{line} {piece}" if line else piece
    return [indent + _shaded(each, _CYAN, style) for each in (" ".join(place), *lines, line)]


_TOGETHER = 3
"""Words of one flag that stay on one line, such as ``--mca NAME VALUE``."""


def _split(words: Sequence[str], wide: int) -> Iterable[str]:
    return [" ".join(words)] if len(words) <= _TOGETHER and len(" ".join(words)) <= wide // 2 else words


def _column(page: Page, style: Style) -> int:
    """Wide enough for most texts."""
    most = min(_WIDE, style.width * 2 // 5) if style.width else _WIDE
    texts = [row.text for host in page.hosts for block in host.blocks for row in block.rows if not row.folded]
    return max([min(_NARROW, most), *(len(text) for text in texts if len(text) <= most)])


def _rows(rows: Sequence[PlanRow], style: Style, indent: str) -> list[str]:
    lines, before = [], ""
    for row in rows:
        if not row.folded:
            lines += _row(row.text, "" if row.reason == before else row.reason, style, indent)
            before = row.reason
    folded = [row for row in rows if row.folded]
    if folded:
        lines += _row(_kinds(folded), f"{folded[0].reason}; --all shows them", style, indent, _FAINT)
    return lines


def _kinds(rows: Sequence[PlanRow]) -> str:
    """``44 variables: 40 SM_*, 3 SAGEMAKER_*, CURRENT_HOST``."""
    heads: dict[str, list[str]] = {}
    for row in rows:
        heads.setdefault(f"{row.name.partition('_')[0]}_*" if row.name.startswith(_MANY) else row.name, []).append(
            row.name
        )
    by_size = sorted(heads.items(), key=lambda each: -len(each[1]))
    kinds = ", ".join(names[0] if len(names) == 1 else f"{len(names)} {head}" for head, names in by_size)
    return kinds if len(rows) == 1 else f"{len(rows)} variables: {kinds}"


_MANY = ("SM_", "SAGEMAKER_")


def _row(text: str, reason: str, style: Style, indent: str, shade: str = _CYAN) -> list[str]:
    """``text`` and, in the second column, its reason; below it where the text leaves too little room."""
    shown = indent + _shaded(text, shade, style)
    if not reason:
        return [shown]
    if style.width is None:
        return [f"{shown}{' ' * max(2, style.column + 2 - len(text))}{reason}"]
    behind = len(indent) + style.column + 2
    begin = max(behind, len(indent) + len(text) + 2)
    if begin + len(reason) <= style.width or begin == behind:
        first, *more = textwrap.wrap(reason, max(style.width - begin, 12), break_long_words=False)
        if begin == behind or not more:
            gap = " " * (begin - len(indent) - len(text))
            return [shown + gap + first, *(" " * begin + line for line in more)]
    return [shown, *_wrapped(reason, style, " " * behind, " " * behind)]


def _wrapped(text: str, style: Style, indent: str, later: str) -> list[str]:
    if style.width is None:
        return [indent + text]
    return textwrap.wrap(
        text,
        style.width,
        initial_indent=indent,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _shaded(text: str, shade: str, style: Style) -> str:
    return f"{shade}{text}{_PLAIN}" if style.colour and shade else text
