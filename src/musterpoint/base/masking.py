"""Hides secrets in every line we print: values with a secret name, and credentials of a known form.

A hash or a long base64 text alone is no secret. A value called ``token`` is; ``tokenizer``, ``max_tokens`` and
``pad_token`` are not.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from musterpoint.base.secret_names import HINTS, is_plain, is_secret
from musterpoint.base.secret_shapes import Span, by_name, by_shape

__all__ = ["MASK", "SHORTEST", "Masker", "is_secret"]

MASK = "***"
SHORTEST = 6
"""Shorter values are hidden only if they mix letters and other characters: otherwise they match by chance."""
SHORTEST_MIXED = 4
_LONG_LINE = 12
"""A line this long in a secret of several lines is always a secret itself."""
_LONG_WORD = 20
"""A text of this many letters is no ordinary word."""
_CUT = 8
"""Characters of a secret's beginning that are hidden where the text was cut there, with an ellipsis."""
_CUT_UNMARKED = 24
"""The same without an ellipsis."""
_LONGEST = 256 << 10
"""Characters of one text that are searched: no argument, variable or quotation is longer."""
_COMMON = frozenset(' :{["')
"""Characters at the beginning of URLs, JSON texts and keys, which many texts share."""
_PATHS = ("/", "./", "../", "~", "%2F", "%2f", "\\/")
"""Beginnings of paths, in every spelling: two paths in one directory share a long beginning."""

_BESIDE = frozenset(
    (
        "type",
        "kind",
        "user",
        "username",
        "name",
        "email",
        "client_email",
        "project",
        "project_id",
        "region",
        "id",
        "client_id",
        "host",
        "port",
        "url",
        "uri",
        "auth_uri",
        "token_uri",
        "universe_domain",
        "database",
        "scope",
    )
)
"""Names inside an object with a secret name whose values aren't secret."""
_PAIRS = (("name", "value"), ("Name", "Value"), ("key", "value"), ("Key", "Value"))
"""How lists give variables: one item has the name, the other the value."""


class Masker:
    """Hides secrets in texts. It finds them by names, at any depth and in JSON text, and by the form of values.

    ``environ`` are variables, ``hyperparameters`` values of any type, ``arguments`` words of a command line and
    ``files`` decoded files, by name.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
        files: Mapping[str, Any] | None = None,
    ) -> None:
        self._sources = (environ or {}, hyperparameters or {}, files or {})
        self._arguments = arguments
        self._added: list[str] = []
        self._values: list[str] | None = None
        self._patterns: dict[tuple[str, ...], re.Pattern[str]] = {}

    def know(self, secret: str) -> None:
        """Hides ``secret`` too from now on."""
        self._added.append(secret)
        self._values = None

    def know_named(self, variables: Iterable[tuple[str, str]]) -> None:
        """Hides the values of those ``variables`` whose names say that they are secret."""
        for name, value in variables:
            if is_secret(name) and not is_plain(value):
                self.know(value)

    def mask(self, text: str) -> str:
        """``text`` for a line we print. Hides known and named values (``--api-key X``) and credentials."""
        return _without(_without(self._without_known(text), by_shape), by_name)

    def mask_user(self, text: str) -> str:
        """``text`` of the user, such as an exception's message. Hides values known to be secret, and credentials that
        have a form of their own, such as an access key's; what only has a secret's name before it stays readable.
        """
        return _without(self._without_known(text), by_shape)

    def _without_known(self, text: str) -> str:
        found = tuple(value for value in self._spellings() if value in text)
        if found:
            pattern = self._patterns.get(found)
            if pattern is None:
                pattern = re.compile("|".join(_bounded(re.escape(value), value) for value in found))
                self._patterns = {found: pattern}
            text = pattern.sub(MASK, text)
        return _without(text, self._beginnings)

    def mask_value(self, name: str, value: str) -> str:
        """``value`` of a variable or option ``name``, for a table."""
        return MASK if value and is_secret(name) and not is_plain(value) else self.mask(value)

    def mask_facts(self, value: Any) -> Any:
        """A JSON value with all its texts masked, and values of secret names hidden."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {
                name: self.mask_value(str(name), inner) if isinstance(inner, str) else self.mask_facts(inner)
                for name, inner in value.items()
            }
        return [self.mask_facts(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    @property
    def secrets(self) -> set[str]:
        """The secrets that are known."""
        secrets = {secret for source in self._sources for secret in _secrets_in_value("", source, False)}
        return secrets.union(_secrets_in_arguments(self._arguments), self._added)

    def _spellings(self) -> list[str]:
        """All spellings of the secrets, the longest first. Made when something is first printed."""
        if self._values is None:
            bare = {text for secret in self.secrets for text in _unquoted(secret) if _is_findable(text)}
            forms = {form for text in bare for form in _forms(text)}
            self._values = sorted(forms, key=lambda value: (-len(value), value))
        return self._values

    def _beginnings(self, text: str) -> Iterator[Span]:
        """Beginnings of secrets that were cut off; those of paths only where an ellipsis follows."""
        for value in self._spellings():
            begins = value[:_CUT]
            at = text.find(begins) if len(value) > _CUT else -1
            while at >= 0:
                end = at + _CUT
                while text[end : end + 1] == value[end - at : end - at + 1] != "":
                    end += 1
                telling = end - at >= _CUT_UNMARKED and not _COMMON & set(text[at:end])
                if (telling and not value.startswith(_PATHS)) or text.startswith(("…", "..."), end):
                    yield at, end
                at = text.find(begins, end)


def _without(text: str, search: Callable[[str], Iterator[Span]]) -> str:
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


def _secrets_in_value(name: str, value: Any, secret: bool) -> Iterator[str]:
    """The secrets in ``value``, whose name is ``name``. ``secret``: it is part of a secret."""
    left = [(name, value, secret)]  # no recursion: a secret may be nested deeper than Python's stack allows
    while left:
        name, value, secret = left.pop()
        secret = secret or is_secret(name)
        if isinstance(value, str):
            inside = _decoded(value, secret)
            value = value[:_LONGEST]
            if secret and not is_plain(value):
                yield value
            if inside is None:
                yield from _secrets_in_text(value)
            else:
                left.append((name, inside, secret))
        elif isinstance(value, Mapping):
            named = {holds: value[called] for called, holds in _PAIRS if isinstance(value.get(called), str)}
            for key, inner in value.items():
                left.append((named.get(key, str(key)), inner, secret and str(key).lower() not in _BESIDE))
        elif isinstance(value, (list, tuple)):
            if all(isinstance(word, str) for word in value):
                yield from _secrets_in_arguments(value)
            left += [("", inner, secret) for inner in value]
        elif secret and isinstance(value, int) and not isinstance(value, bool):
            yield str(value)


def _decoded(text: str, secret: bool) -> Any:
    """``text`` decoded as JSON, if it is a ``secret`` or may have secret names in it; else None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    lowered = text.lower()
    if secret or any(hint in lowered for hint in HINTS):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return None


def _secrets_in_text(text: str) -> Iterator[str]:
    """Secrets inside a text. An ordinary word counts only after ``name=`` or a URL's ``user:``."""
    for search, signs in ((by_shape, "=:"), (by_name, "='\"")):
        for start, end in search(text):
            found = text[start:end]
            if text[start - 1] in signs or not found.isalpha() or len(found) >= _LONG_WORD:
                yield found


def _secrets_in_arguments(words: Iterable[str]) -> Iterator[str]:
    before = ""
    for word in words:
        name, equals, value = word.partition("=")
        # look at the option before it first: a secret in base64 may end in "="
        if before.startswith("-") and is_secret(before.lstrip("-")) and not word.startswith("--"):
            yield from _secrets_in_value("", word, True)
        elif equals and " " not in name and is_secret(name.lstrip("-")):
            yield from _secrets_in_value("", value, True)
        yield from _secrets_in_text(word[:_LONGEST])
        before = "" if equals else word


def _is_findable(secret: str) -> bool:
    """Whether a secret can be told from other text. A fraction can't: ``0.25`` is in ``10.257``."""
    if MASK in secret or _is_fraction(secret):
        return False
    mixed = not secret.isalpha() and not secret.isdigit()
    return len(secret) >= SHORTEST or (len(secret) >= SHORTEST_MIXED and mixed)


def _is_fraction(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "." in text or "e-" in text


def _unquoted(secret: str) -> tuple[str, ...]:
    """``secret``, and the same without blanks and quotes around it, and without percent-encoding."""
    return secret, secret.strip(), secret.strip().strip("'\""), _from_url(secret)


def _forms(secret: str) -> Iterator[str]:
    """The spellings of a secret: in base64, in URLs, in JSON, in Python's and a shell's quotes, line by line."""
    yield secret
    data = _bytes(secret)
    if len(secret) >= SHORTEST:
        yield b2a_base64(data, newline=False).decode().rstrip("=")
    if not secret.isalnum():
        for digits in ("02X", "02x"):
            whole = _in_url(data, "", digits)
            yield from (whole, whole.replace("%20", "+"), _in_url(data, "/", digits))
        for once in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
            yield from (once, json.dumps(once)[1:-1], once.replace("/", "\\/"))
        yield from (repr(secret)[1:-1], secret.replace("'", "'\"'\"'"))
    if not secret.isascii():
        yield from (ascii(secret)[1:-1], repr(data)[2:-1])
    if "\n" in secret:
        yield from filter(_is_telling, map(str.strip, secret.splitlines()))


def _is_telling(line: str) -> bool:
    """Whether one line of a secret of several lines is a secret itself."""
    if line.startswith("-----") or line.endswith((":", "]")):
        return False
    mixed = any(map(str.isalpha, line)) and any(map(str.isdigit, line))
    region = line[-2:-1] == "-"  # eu-west-1, algo-1
    return len(line) >= _LONG_LINE or (len(line) >= SHORTEST and mixed and not region and " " not in line)


def _bytes(text: str) -> bytes:
    """``text`` as it would be in a program's environment; half of a surrogate pair can only come from JSON."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _in_url(data: bytes, safe: str, digits: str) -> str:
    """Percent-encoded. ``urllib.parse`` costs more than all of this at start."""
    kept = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~" + safe.encode())
    return "".join(chr(byte) if byte in kept else f"%{byte:{digits}}" for byte in data)


def _from_url(text: str) -> str:
    """``text`` without its percent-encoding."""
    first, *rest = text.split("%")
    data = bytearray(_bytes(first))
    for part in rest:
        try:
            data += bytes.fromhex(part[:2]) + _bytes(part[2:])
        except ValueError:
            return text
    return data.decode("utf-8", "surrogateescape")


_AFTER = ("%[0-9A-Fa-f][0-9A-Fa-f]", r"\\[nrtbfv]", r"\[[0-9]m", r"\[[0-9][0-9]m", r"\[[0-9];[0-9][0-9]m")
"""Escapes of URLs, strings and terminals: they end in a letter or digit, but a word may begin after them."""


def _bounded(pattern: str, value: str) -> str:
    """The pattern for ``value``. Short values, words and numbers match only where they aren't part of a longer word.

    Words of letters also occur in names: ``tokenizer`` isn't hidden in ``--tokenizer`` or ``{"tokenizer": …}``.
    """
    edge, name = "[A-Za-z0-9]", ""
    if len(value) < _LONG_WORD and value.replace("-", "").replace("_", "").isalpha():
        edge, name = r"[\w-]", r"(?!=|\\*[\"']\s?:)"
    elif not value.isalnum() or len(value) >= 12 or (len(value) >= 8 and not value.isalpha() and not value.isdigit()):
        return pattern
    after = "|".join(f"(?<={before}{pattern})" for before in _AFTER)
    return f"{pattern}(?!{edge}){name}(?:(?<!{edge}{pattern})|{after})"
