"""Secrets, hidden in every line we print: by the name of what holds them, and by the shape of known credentials.

A hash or a long base64 text alone is no secret. ``token`` is; ``tokenizer``, ``max_tokens`` and ``pad_token`` are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Mapping

if TYPE_CHECKING:
    import re

MASK = "***"
SHORTEST = 6
"""Shorter values are never replaced where they occur in a text: they would match by chance."""

_SECRET_WORDS = frozenset((
    "token", "secret", "secrets", "password", "passwd", "passphrase", "pwd", "credential", "credentials", "creds",
    "apikey", "authorization",
))  # fmt: skip
_HINTS = ("token", "secret", "passw", "passphrase", "pwd", "cred", "key", "authorization")
"""One of these is in every secret name: a quick look before the careful one."""
_SECRET_KEYS = frozenset((
    "api", "access", "private", "secret", "signing", "encryption", "account", "auth", "ssh", "shared", "master",
    "storage",
))  # fmt: skip
"""Words that make a secret of a following ``key``."""
_NOT_VALUES = frozenset((
    "file", "path", "dir", "directory", "name", "type", "types", "arn", "url", "endpoint", "expiry", "expiration",
    "ttl",
))  # fmt: skip
"""Last words that say the value is about a secret, not the secret."""
_TOKEN_KINDS = frozenset((
    "pad", "eos", "bos", "cls", "sep", "unk", "mask", "image", "audio", "video", "special", "additional", "extra",
    "stop", "start", "end", "begin", "per", "next", "first", "last", "prompt", "decoder", "forced", "drop",
    "num", "number", "max", "min", "sample",
))  # fmt: skip
"""Words before ``token`` in the language of text models."""
_TOKEN_FACTS = frozenset((
    "id", "ids", "idx", "dim", "len", "length", "count", "counts", "limit", "budget", "embedding", "embeddings",
    "dropout", "classification", "level", "merging", "size", "weight", "weights", "freq", "frequency", "rate",
    "prob", "mixing", "pooling", "index", "position", "positions", "mask", "type", "types",
))  # fmt: skip
"""Words after ``token`` in the language of text models."""


class Masker:
    """Hides secrets. Known values come from ``environ`` and ``hyperparameters`` (nested values too), by their names."""

    def __init__(
        self, environ: Mapping[str, str] | None = None, hyperparameters: Mapping[str, Any] | None = None
    ) -> None:
        known = {*_secret_values(environ or {}), *_secret_values(hyperparameters or {})}
        self._known = sorted(known, key=lambda value: (-len(value), value))
        self._literal: re.Pattern[str] | None = None

    def mask(self, text: str) -> str:
        """``text`` for a line we print: known values, named values (``--api-key X``) and credentials by shape."""
        text = self.mask_user(text)
        for pattern, replacement in _shapes():
            text = pattern.sub(replacement, text)
        return _pairs().sub(_mask_pair, text)

    def mask_user(self, text: str) -> str:
        """``text`` of the user's own, such as an exception's message: only values known to be secret are hidden."""
        if not self._known:
            return text
        if self._literal is None:
            import re

            self._literal = re.compile("|".join(_bounded(re.escape(value), value) for value in self._known))
        return self._literal.sub(MASK, text)

    def mask_value(self, name: str, value: str) -> str:
        """The value of a variable or option ``name`` for a table."""
        return MASK if value and is_secret(name) and not _is_plain(value) else self.mask(value)


def is_secret(name: str) -> bool:
    """Whether ``name`` says, as whole words, that its value is a secret."""
    lowered = name.lower()
    if not any(part in lowered for part in _HINTS):
        return False
    words = _words(name)
    if not words or words[-1] in _NOT_VALUES or name == "PWD":
        return False
    for before, word, after in zip(["", *words[:-1]], words, [*words[1:], ""], strict=True):
        if word == "token":
            if before not in _TOKEN_KINDS and after not in _TOKEN_FACTS:
                return True
        elif word in _SECRET_WORDS or (word == "key" and before in _SECRET_KEYS):
            return True
    return False


def _words(name: str) -> list[str]:
    """``name`` in lower-case words, split at ``_ - .`` and in camelCase. Without ``re``: this runs at every start."""
    parted = ""
    for before, letter, after in zip(" " + name, name, name[1:] + " ", strict=False):
        if letter.isupper() and (before.islower() or before.isdigit() or (before.isupper() and after.islower())):
            parted += " "
        parted += letter.lower() if letter.isalnum() else " "
    return parted.split()


def _secret_values(values: Mapping[str, Any]) -> Iterator[str]:
    """The values to hide of a mapping: strings under secret names, at any depth."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _secret_values(value)
        elif isinstance(value, str) and len(value) >= SHORTEST and is_secret(str(name)) and not _is_plain(value):
            yield value


def _is_plain(value: str) -> bool:
    """Whether a value can't be a secret whatever its name: a switch, nothing, or the path of a JSON file."""
    return value.lower() in ("true", "false", "none", "null", "yes", "no", "on", "off") or (
        value.startswith(("/", "./")) and value.endswith((".json", ".pem", ".txt"))
    )


def _bounded(pattern: str, value: str) -> str:
    """Short words are hidden only where they stand alone."""
    return rf"(?<![A-Za-z0-9]){pattern}(?![A-Za-z0-9])" if value.isalnum() and len(value) < 12 else pattern


def _mask_pair(found: re.Match[str]) -> str:
    name = found["option"] or found["plain"]
    return found["lead"] + MASK if is_secret(name) and not _is_plain(found["value"]) else found[0]


_compiled: dict[str, Any] = {}


def _pairs() -> re.Pattern[str]:
    """``--name value``, ``name=value``, ``name: value`` and ``"name": "value"``."""
    if "pairs" not in _compiled:
        import re

        _compiled["pairs"] = re.compile(
            # names are bounded, or a long line without blanks would take the square of its length
            r"""(?P<lead>(?:(?<=--)(?P<option>[A-Za-z][\w.-]{0,127})[ ](?!--)"""
            r"""|(?<!\w)(?P<plain>[A-Za-z_][\w.-]{0,127})["']?\s*[=:]\s*)["']?)"""
            r"""(?P<value>(?!\*\*\*)[^\s"',;&}\])]+)"""
        )
    pattern: re.Pattern[str] = _compiled["pairs"]
    return pattern


def _shapes() -> list[tuple[re.Pattern[str], str]]:
    """Credentials that are known by their form alone."""
    if "shapes" not in _compiled:
        import re

        _compiled["shapes"] = [(re.compile(pattern, re.S), replacement) for pattern, replacement in _SHAPES]
    shapes: list[tuple[re.Pattern[str], str]] = _compiled["shapes"]
    return shapes


_SHAPES = (
    (r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.*?(?:-----END (?:[A-Z]+ )*PRIVATE KEY-----|\Z)", MASK),
    # a secret key beside its key id, then the key id itself
    (r"\b((?:AKIA|ASIA)[A-Z0-9]{16}[^\w/+]{1,20})[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])", r"\1" + MASK),
    (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", MASK),
    (r"(\b[a-z][a-z0-9+.-]*://[^\s:/@'\"]*:)[^\s/@'\"]+(@)", r"\1" + MASK + r"\2"),
    (r"([?&](?:X-Amz-Signature|X-Amz-Credential|X-Amz-Security-Token|Signature|sig)=)[^\s&'\"]+", r"\1" + MASK),
    (r"\b([Bb]earer\s+)[A-Za-z0-9._~+/=-]{8,}", r"\1" + MASK),
    (r"([Aa]uthorization[\"']?\s*[:=]\s*[\"']?[Bb]asic\s+)[A-Za-z0-9+/=]+", r"\1" + MASK),
    (r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*", MASK),
    (r"\bgh[pousr]_[A-Za-z0-9]{36,}\b|\bgithub_pat_\w{30,}|\bglpat-[\w-]{20,}", MASK),
    (r"\bhf_[A-Za-z0-9]{30,}\b|\bnpm_[A-Za-z0-9]{36}\b|\bpypi-AgE[\w-]{40,}", MASK),
    (r"\bsk-(?=[\w-]*\d)(?:[a-z]+-)*[A-Za-z0-9_-]{32,}|\bxox[abprs]-[\w-]{10,}|\bAIza[\w-]{35}\b", MASK),
)  # fmt: skip
