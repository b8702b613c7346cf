"""Finds secrets in a text: credentials of a known form, and values with a secret name before them.

Every search takes time in proportion to the text's length: an installer's line may be a MiB long.
"""

from __future__ import annotations

import re
from typing import Any, Iterator

from musterpoint.base.secret_names import HINTS, is_plain, is_secret

Span = tuple[int, int]
"""Where a secret is in a text: index of its first character, and of the one after its last."""

_LONGEST_NAME = 128
_SCHEMES = frozenset(("bearer", "basic", "token", "digest", "apikey", "negotiate"))
"""The words between ``Authorization:`` and the credential."""

_SHAPES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("PRIVATE KEY",),
        r"(?P<secret>-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|\Z))",
    ),
    # a secret key beside its key id, then the key id itself
    (("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}[^\w/+]{1,20}(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"),
    (("AKIA", "ASIA"), r"\b(?P<secret>(?:AKIA|ASIA)[A-Z0-9]{16})\b"),
    (("://",), r"://[^\s:/@'\"\[]*:(?!\d{1,5}(?:[/?#,;\s'\")\]]|$))(?P<secret>[^\s/'\"]+)@"),
    # a password with a slash in it, in base64 or escaped; a path after host:port, host:$PORT or host:owner is none
    (
        ("://",),
        r"://[^\s:/@'\"\[]*:(?!\d{1,5}(?:[/?#,;]|$))(?=[^\s'\"@]{0,128}[+=%\d])"
        r"(?P<secret>[^\s/'\"@:,$<{]{1,64}/[^\s'\"@]{1,64})(?<!\.git)@",
    ),
    (("://",), r"https?://(?P<secret>(?=[^\s/@:'\"]*\d)[\w.~%-]{16,})@"),
    (
        ("X-Amz-", "X-Goog-", "Signature=", "sig="),
        r"[?&](?:X-(?:Amz|Goog)-(?:Signature|Credential)=|X-Amz-Security-Token=|(?:Signature|sig)=(?=[^\s&'\"]{16}))"
        r"(?P<secret>[^\s&'\"]+)",
    ),
    (
        ("earer", "EARER"),
        r"\b(?:[Bb]earer|BEARER)(?:\s{1,8}|%20)(?P<secret>(?=[\w.~+/=-]*\d|[\w.~+/=-]{20})[\w.~+/=-]{8,})",
    ),
    (("asic",), r"[Aa]uthorization[\"']?\s{0,8}[:=]\s{0,8}[\"']?[Bb]asic\s{1,8}(?P<secret>[\w+/=-]+)"),
    (("eyJ",), r"(?<![\w-])(?P<secret>eyJ[\w-]{10,}\.[\w-]*\.[\w-]{10,}[\w.-]*)"),
    (
        ("login",),
        r"\b(?:machine\s{1,8}\S{1,128}|default)\s{1,8}login\s{1,8}\S{1,128}\s{1,8}password\s{1,8}(?P<secret>\S+)",
    ),
    (
        (
            "ghp_",
            "gho_",
            "ghu_",
            "ghs_",
            "ghr_",
            "github_pat_",
            "hf_",
            "npm_",
            "pypi-AgE",
            "AIza",
            "dckr_pat_",
            "_live_",
            "_test_",
            "whsec_",
            "SG.",
            "dapi",
            "ya29.",
            "1//0",
            "GOCSPX-",
            "nvapi-",
            "r8_",
            "_v1_",
            "hvs.",
            "hvb.",
            ".atlasv1.",
            "8Q~",
            "7Q~",
            "AGE-SECRET-KEY-",
            "oGZXIvYXdz",
            "IQoJb3JpZ2lu",
        ),
        r"(?<![\w-])(?P<secret>gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{30,}|hf_[A-Za-z0-9]{30,}"
        r"|npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{40,}|AIza[\w-]{35}|dckr_pat_[\w-]{20,}|r8_[A-Za-z0-9]{37}"
        r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[\w+/=]{24,}|SG\.[\w-]{16,}\.[\w-]{16,}|dapi[0-9a-f]{32}"
        r"|ya29\.[\w-]{20,}|1//0[\w-]{20,}|GOCSPX-[\w-]{20,}|nvapi-(?=[\w-]*\d)[\w-]{20,}|wandb_v1_\w{20,}|do[opr]_v1_[0-9a-f]{64}"
        r"|hv[sb]\.[\w-]{20,}|\w{14}\.atlasv1\.\w{60,}|\w{3}[78]Q~[\w~.-]{31,34}|AGE-SECRET-KEY-1[0-9A-Z]{50,}"
        r"|(?:FwoGZXIvYXdz|FQoGZXIvYXdz|IQoJb3JpZ2lu)[A-Za-z0-9/+=]{20,})",
    ),
    (("gl",), r"(?<![\w-])(?P<secret>gl(?:pat|dt|rt|cbt|ptt|soat|ft|agent|oas|imt)-[\w-]{20,}(?:\.[\w.]+)?)"),
    (("xox", "xapp-"), r"(?<![\w-])(?P<secret>(?:xox[abeprs]-(?=[\w-]*\d)|xapp-\d-)[\w-]{10,})"),
    (("sk-",), r"(?<![\w-])(?P<secret>sk-(?:[a-z]+[0-9]*-){0,4}(?=[\w]*\d)\w{16}[\w-]{4,})"),
    (("sk-",), r"(?<![\w-])(?P<secret>sk-(?:proj|svcacct|admin|ant|or|None)-(?=[\w-]*\d)[\w-]{20,})"),
    (
        ("hooks.slack.com", "/api/webhooks/"),
        r"(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/(?P<secret>[\w/-]+)",
    ),
)
"""Words of which a text must have one to be searched, and the pattern; its group ``secret`` is hidden."""


def by_shape(text: str) -> Iterator[Span]:
    """Credentials of known forms, form by form; they may overlap."""
    for at, (needles, _) in enumerate(_SHAPES):
        for needle in needles:  # any() would take twice as long, and every line that we print comes by here
            if needle in text:
                for found in _pattern(at).finditer(text):
                    yield found.span("secret")
                break


def by_name(text: str) -> Iterator[Span]:
    """Values of secret names: ``--name value``, ``name=value``, ``name: value``, ``"name": "value"``, also in lists."""
    lowered = text.lower()
    if not any(hint in lowered for hint in HINTS):
        return
    done, judged = 0, dict[str, bool]()
    for word in _pattern("word").finditer(text):
        if word.start() < done:
            continue
        name = word[0][-_LONGEST_NAME:].strip("-.")
        if name not in judged:
            judged[name] = is_secret(name)
        if judged[name] and not _is_of_arn(text, word.start(), word.end()):
            span = _value(text, word.end(), word[0].startswith("-"))
            if span is not None and not _says_nothing(name, text[word.end() : span[0]], text[span[0] : span[1]]):
                yield span
                done = span[1]


_PROSE = frozenset(("instance", "missing", "expired", "invalid", "required", "unset", "empty", "wrong", "not", "no"))
"""Words behind a colon and a blank that tell of a secret: ``credentials: instance profile``."""
_LONGEST_NUMBER = 6


def _says_nothing(name: str, between: str, value: str) -> bool:
    """Whether the ``value`` behind a secret's name isn't one. No token is a short number; a password may be."""
    if value.isdecimal() and len(value) <= _LONGEST_NUMBER and "pass" not in name.lower() and "pwd" not in name.lower():
        return True
    return is_plain(value) or (between == ": " and value.lower() in _PROSE)


def _is_of_arn(text: str, start: int, end: int) -> bool:
    """Whether a word is between two colons of an ARN, as in ``arn:aws:secretsmanager:eu-west-1:1:secret:db``."""
    if text[start - 1 : start] != ":" or text[end : end + 1] != ":":
        return False
    before, arn, since = text[max(0, start - _LONGEST_NAME) : start].rpartition("arn:")
    return arn != "" != since and not before[-1:].isalnum() and not any(map(str.isspace, since))


def _value(text: str, at: int, option: bool) -> Span | None:
    """The value that belongs to the name that ends before ``at``; None where none follows."""
    opened = _pattern("equals").match(text, at)
    if opened is None and option:
        opened = _pattern("next word").match(text, at) or _pattern("next item").match(text, at)
    if opened is None:
        opened = _pattern("is").match(text, at)
    if opened is None:
        return None
    start, quote = opened.end(), opened["quote"]
    if len(quote) == 1:
        inside = _pattern(quote).match(text, start)
        end = inside.end() if inside else start
    elif quote:
        end = text.find(quote, start)
        line = text.find("\n", start)
        end = end if end >= 0 else line if line >= 0 else len(text)
    else:
        bare = _pattern("bare").match(text, start)
        end = bare.end() if bare else start
        if text[start:end].lower() in _SCHEMES:
            following = _pattern("following").match(text, end)
            end = following.end() if following else end
    return (start, end) if end > start else None


_FORMS = {
    "word": r"[\w.-]+",
    "equals": r"""\\*["']?[ \t]{0,8}(?:=>|:=|[=:](?![=:]|//))[ \t]{0,8}(?P<quote>\\*["']|)""",
    "next word": r"""[ \t]{1,8}(?!--)(?P<quote>["']|)""",
    "next item": r"""\\*["'][ \t]{0,8},[ \t]{0,8}(?P<quote>\\*["'])(?!--)""",
    "is": r"""["']?[ \t]{1,8}is[ \t]{1,8}(?P<quote>["'])""",
    '"': r'(?:[^"\\\n]|\\.)*',
    "'": r"(?:[^'\\\n]|\\.)*",
    "bare": r"""(?![{[(]+(?:[\s"'\\]|$))[^\s"',;&}\])\\]+""",
    "following": r"""[ \t]{1,8}(?!--)[^\s"',;&}\])\\]+""",
}

_compiled: dict[Any, re.Pattern[str]] = {}


def _pattern(which: int | str) -> re.Pattern[str]:
    found = _compiled.get(which)
    if found is None:
        text, flags = (_SHAPES[which][1], re.S) if isinstance(which, int) else (_FORMS[which], 0)
        found = _compiled[which] = re.compile(text, flags)
    return found
