"""Text that came over a wire, made fit for our lines and files: cut, and without what a terminal or a log obeys."""

from __future__ import annotations

_OF_NAMES = "-_.:0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LINE_ENDS = "\u2028\u2029"


def printable(text: str, most: int, lines: bool = False) -> str:
    """``text`` within ``most`` bytes of UTF-8, with an ellipsis where it was cut.

    Control characters, marks that change the direction of writing, and what is no Unicode are escaped as Python
    escapes them. ``lines``: line ends and tabs stay.
    """
    text = text[: most + 1]
    if not text.isprintable():
        text = "".join(mark if _harmless(mark, lines) else ascii(mark)[1:-1] for mark in text)
    return clip(text, most)


def clip(text: str, most: int) -> str:
    """``text`` within ``most`` bytes of UTF-8, cut at a character, with an ellipsis where something is missing."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    return data[: most - 3].decode("utf-8", "ignore").rstrip() + "…"


def _harmless(mark: str, lines: bool) -> bool:
    if mark.isprintable() or (lines and mark in "\n\t"):
        return True
    return mark.isspace() and mark > "\x9f" and mark not in _LINE_ENDS


def is_host_name(text: str) -> bool:
    """Whether a host may be called so: letters, digits, ``-``, ``_``, ``.`` and ``:``, 253 characters at most."""
    if not 0 < len(text) <= 253:
        return False
    rest = text.strip(_OF_NAMES)  # nothing is left of nearly every name there is
    return not rest or all(mark.isalnum() or mark in _OF_NAMES for mark in rest)
