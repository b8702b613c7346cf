"""A password for a package index that neither a command line nor a log ever shows.

pip hands its index on to the builds it starts, on their command lines: a password must not be in it. So it stands in a
netrc file of this host's user alone, which pip, uv and every build below them find through ``NETRC``.
"""

from __future__ import annotations

import os
from typing import Mapping

from musterpoint.masking import MASK


class Credentials:
    """Kept in ``folder``, a directory of this user alone that is removed after the install."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._hidden: list[str] = []

    def give(self, url: str, user: str, password: str, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables that make the index at ``url`` the one to install from. The user's own netrc still holds."""
        from urllib.parse import quote, urlsplit

        self._hidden += [password, quote(password, safe="")]
        path = os.path.join(self._folder, "netrc")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"machine {urlsplit(url).hostname}\nlogin {user}\npassword {password}\n\n{_own(environ)}")
        return {"PIP_INDEX_URL": url, "UV_DEFAULT_INDEX": url, "NETRC": path}

    def hide(self, text: str) -> str:
        """``text`` without any password that was given."""
        for secret in self._hidden:
            text = text.replace(secret, MASK)
        return text


def _own(environ: Mapping[str, str]) -> str:
    """The netrc file that the user has anyway."""
    home = environ.get("HOME", "")
    for path in (environ.get("NETRC", ""), os.path.join(home, ".netrc") if home else ""):
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError):
            continue
    return ""
