"""Keeps passwords of package indexes off command lines and out of logs.

pip passes its index URLs on the command lines of the builds it starts, so they must have no password. The password is
in a netrc file that only this user can read; pip, uv and the builds below them find it through ``NETRC``.
"""

from __future__ import annotations

import os
from typing import Mapping
from urllib.parse import quote, unquote, urlsplit

from musterpoint.base.masking import MASK, SHORTEST

INDEXES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
"""The variables whose URLs pip passes on."""
_NO_WORD = frozenset(" \t\r\n\"'\\#")
"""Characters that not every Python can read in a word of a netrc file."""


class Credentials:
    """The passwords of one install. ``folder`` is readable by this user only and removed afterwards."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._hidden: list[str] = []
        self._machines: dict[str, tuple[str, str]] = {}
        self._user_text: str | None = None

    def give(self, url: str, user: str, password: str, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables with which the index at ``url`` is used. Entries of the user's own netrc file stay valid."""
        self._hidden += [password, quote(password, safe="")]
        self._machines[urlsplit(url).hostname or ""] = (user, password)
        return {"PIP_INDEX_URL": url, "UV_DEFAULT_INDEX": url, **self._netrc(environ)}

    def take_from(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Moves the passwords in URLs of :data:`INDEXES` to the netrc file; the variables that result.

        A host with two different passwords keeps them in its URLs: netrc has one for each host.
        """
        urls = [url for name in INDEXES for url in environ.get(name, "").split() if "://" in url and "@" in url]
        found: dict[str, set[tuple[str, str]]] = {}
        for url in urls:
            host, pair = _login(url)
            found.setdefault(host, set()).add(pair)
        taken = {host: pairs.pop() for host, pairs in found.items() if len(pairs) == 1}
        taken = {host: pair for host, pair in taken.items() if host and all(pair) and not _NO_WORD & set("".join(pair))}
        if not taken:
            return {}
        for _, password in taken.values():
            # a short one also occurs by chance; it is hidden together with its URL
            self._hidden += [password, quote(password, safe="")] if len(password) >= SHORTEST else []
        self._machines.update(taken)
        variables = self._netrc(environ)
        for name in INDEXES:
            words = [
                _without_login(word) if "://" in word and _login(word)[0] in taken else word
                for word in environ.get(name, "").split()
            ]
            if words:
                variables[name] = " ".join(words)
        return variables

    def hide(self, text: str) -> str:
        """``text`` without any password that was given."""
        for secret in self._hidden:
            text = text.replace(secret, MASK)
        return text

    def _netrc(self, environ: Mapping[str, str]) -> dict[str, str]:
        path = os.path.join(self._folder, "netrc")
        if self._user_text is None:
            self._user_text = _user_netrc(environ)
        machines = [f"machine {host}\nlogin {user}\npassword {word}\n" for host, (user, word) in self._machines.items()]
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write("\n".join([self._user_text, "", *machines]))  # of two entries for one host the last one counts
        return {"NETRC": path}


def _login(url: str) -> tuple[str, tuple[str, str]]:
    """The host of a URL, and the user and password in it (decoded, empty where there are none)."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", (unquote(parts.username or ""), unquote(parts.password or ""))
    except ValueError:
        return "", ("", "")


def _without_login(url: str) -> str:
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def _user_netrc(environ: Mapping[str, str]) -> str:
    """The text of the user's own netrc file; empty where there is none."""
    home = environ.get("HOME", "")
    for path in (environ.get("NETRC", ""), os.path.join(home, ".netrc") if home else ""):
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError):
            continue
    return ""
