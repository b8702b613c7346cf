"""Secrets, hidden in every line we print: by the name of what holds them, and by the shape of known credentials.

A hash or a long base64 text alone is no secret. ``token`` is; ``tokenizer``, ``max_tokens`` and ``pad_token`` are not.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping, Sequence

from musterpoint.secret_names import HINTS, is_plain, is_secret

__all__ = ["MASK", "SHORTEST", "Masker", "is_secret"]

MASK = "***"
SHORTEST = 6
"""Shorter values are replaced in a text only if they mix letters with something else: else they match by chance."""
SHORTEST_MIXED = 4
_LONG_LINE = 12
"""Characters from which on one line of a secret of several lines is a secret itself."""
_CUT = 8
"""How much of a secret's beginning is known for it where a text was cut there."""

_BESIDE = frozenset((
    "type", "kind", "user", "username", "name", "email", "client_email", "project", "project_id", "region", "id",
    "client_id", "host", "port", "url", "uri", "auth_uri", "token_uri", "universe_domain", "database", "scope",
))  # fmt: skip
"""Names within an object called a secret whose values are none."""


class Masker:
    """Hides secrets. What is secret is told by names, at any depth and in JSON text, and by the shape of values.

    ``environ`` are variables, ``hyperparameters`` values of any type, ``arguments`` words of a command line and
    ``files`` decoded files, by name.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, hyperparameters: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (), files: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self._told = (environ or {}, hyperparameters or {}, files or {})
        self._arguments = arguments
        self._values: list[str] | None = None
        self._patterns: dict[tuple[str, ...], Any] = {}

    def mask(self, text: str) -> str:
        """``text`` for a line we print: known values, named values (``--api-key X``) and credentials by shape."""
        from musterpoint.secret_shapes import by_name, by_shape

        text = _without(self.mask_user(text), by_shape)
        return _without(text, by_name)

    def mask_user(self, text: str) -> str:
        """``text`` of the user's own, such as an exception's message: only values known to be secret are hidden."""
        found = tuple(value for value in self._known() if value in text)
        if found:
            pattern = self._patterns.get(found)
            if pattern is None:
                import re

                pattern = re.compile("|".join(_bounded(re.escape(value), value) for value in found))
                self._patterns = {found: pattern}
            text = pattern.sub(MASK, text)
        return self._without_beginnings(text) if "…" in text or "..." in text else text

    def mask_value(self, name: str, value: str) -> str:
        """The value of a variable or option ``name`` for a table."""
        return MASK if value and is_secret(name) and not is_plain(value) else self.mask(value)

    def mask_facts(self, value: Any) -> Any:
        """A JSON value with all its texts masked as lines of ours, and those under secret names hidden."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {
                name: self.mask_value(str(name), inner) if isinstance(inner, str) else self.mask_facts(inner)
                for name, inner in value.items()
            }
        return [self.mask_facts(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    def _known(self) -> list[str]:
        """What to look for, the longest first. Found when something is first printed: most jobs start before."""
        if self._values is None:
            secrets = {secret for told in self._told for secret in _within("", told, False)}
            secrets.update(_of_arguments(self._arguments))
            forms = {form for secret in secrets if _is_findable(secret) for form in _forms(secret)}
            self._values = sorted(forms, key=lambda value: (-len(value), value))
        return self._values

    def _without_beginnings(self, text: str) -> str:
        """Without what is left of a secret where a text was cut."""
        return _without(text, self._beginnings)

    def _beginnings(self, text: str) -> Iterator[tuple[int, int]]:
        long = [value for value in self._known() if len(value) > _CUT]
        for mark in ("…", "..."):
            end = text.find(mark)
            while end >= 0:
                for value in long:
                    at = text.rfind(value[:_CUT], max(0, end - len(value)), end)
                    if at >= 0 and value.startswith(text[at:end]):
                        yield at, end
                        break
                end = text.find(mark, end + len(mark))


def _without(text: str, search: Any) -> str:
    """``text`` with :data:`MASK` in place of every span that ``search`` finds in it."""
    spans = sorted(search(text))
    if not spans:
        return text
    parts, at = [], 0
    for start, end in spans:
        if start >= at:
            parts += [text[at:start], MASK]
        at = max(at, end)
    return "".join(parts) + text[at:]


def _within(name: str, value: Any, secret: bool) -> Iterator[str]:
    """The secrets of ``value``, which is called ``name``; ``secret`` says that it is part of one."""
    secret = secret or is_secret(name)
    if isinstance(value, str):
        yield from _in_text(name, value, secret)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _within(str(key), inner, secret and str(key).lower() not in _BESIDE)
    elif isinstance(value, (list, tuple)):
        if all(isinstance(word, str) for word in value):
            yield from _of_arguments(value)
        for inner in value:
            yield from _within("", inner, secret)
    elif secret and isinstance(value, int) and not isinstance(value, bool):
        yield str(value)


def _in_text(name: str, value: str, secret: bool) -> Iterator[str]:
    if secret and not is_plain(value):
        yield value
    if value.lstrip()[:1] in ("{", "[") and any(hint in value.lower() for hint in HINTS):
        try:
            import json

            yield from _within(name, json.loads(value), secret)
            return
        except (ValueError, RecursionError):
            pass
    yield from _of_lines(value)


def _of_lines(text: str) -> Iterator[str]:
    """Secrets inside a text, such as the password of a URL. A mere word behind a name may be anybody's sentence."""
    from musterpoint.secret_shapes import by_name, by_shape

    for start, end in by_shape(text):
        yield text[start:end]
    for start, end in by_name(text):
        if not text[start:end].isalpha():
            yield text[start:end]


def _of_arguments(words: Iterable[str]) -> Iterator[str]:
    before = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            if is_secret(name.lstrip("-")) and not is_plain(value):
                yield value
        elif before.startswith("-") and is_secret(before.lstrip("-")) and not word.startswith("--"):
            yield from _in_text("", word, True)
        yield from _of_lines(word)
        before = word


def _is_findable(secret: str) -> bool:
    """Whether a secret can be told from other text."""
    if MASK in secret:
        return False
    mixed = not secret.isalpha() and not secret.isdigit()
    return len(secret) >= SHORTEST or (len(secret) >= SHORTEST_MIXED and mixed)


def _forms(secret: str) -> Iterator[str]:
    """How a secret may be spelled: as it is, in URLs, in JSON, in Python's and a shell's quotes, line by line."""
    yield secret
    stripped = secret.strip()
    if stripped != secret and _is_findable(stripped):
        yield stripped
    if not secret.isalnum():
        from json import dumps

        yield from (_in_url(secret, ""), _in_url(secret, "/"), _in_url(secret, "").replace("%20", "+"))
        for once in (dumps(secret)[1:-1], dumps(secret, ensure_ascii=False)[1:-1]):
            yield from (once, dumps(once)[1:-1], once.replace("/", "\\/"))
        yield from (repr(secret)[1:-1], secret.replace("'", "'\"'\"'"))
    if "\n" in secret:
        for line in secret.splitlines():
            if len(line.strip()) >= _LONG_LINE and not line.startswith("-----"):
                yield line.strip()


def _in_url(text: str, safe: str) -> str:
    """Percent-encoded. ``urllib.parse`` costs more than all of this at start."""
    kept = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~" + safe.encode())
    data = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in data)


_AFTER = r"(?<=%[0-9A-F][0-9A-F])|(?<=\\[nrtbfv])|(?<=\[[0-9]m)|(?<=\[[0-9][0-9]m)|(?<=\[[0-9];[0-9][0-9]m)"
"""What ends in a letter or digit and still stands before a word: an escape of a URL, of a string, of a terminal."""


def _bounded(pattern: str, value: str) -> str:
    """Short words are hidden only where they stand alone."""
    if not value.isalnum() or len(value) >= 12:
        return pattern
    return rf"(?:(?<![A-Za-z0-9])|{_AFTER}){pattern}(?![A-Za-z0-9])"
