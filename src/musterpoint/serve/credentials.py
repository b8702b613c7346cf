"""The keys that calls may be signed with: the server's own, and those that its STS and IAM have given out."""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
from typing import Mapping

FILE = "credentials.json"
_ISSUING = re.compile(rb"<(?:Credentials|AccessKey)>.*?</(?:Credentials|AccessKey)>", re.DOTALL)
_FIELD = r"<%s>([^<]*)</%s>"


def made_or_given(data: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Access key and secret: those of ``environ``, else those made for this data directory, once."""
    given = environ.get("AWS_ACCESS_KEY_ID", ""), environ.get("AWS_SECRET_ACCESS_KEY", "")
    if all(given):
        return given
    path = os.path.join(data, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        return kept["access_key"], kept["secret_key"]
    except FileNotFoundError:
        pass
    made = "MUSTER" + secrets.token_hex(7).upper(), secrets.token_hex(20)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump({"access_key": made[0], "secret_key": made[1]}, file)
    return made


class Credentials:
    """All keys that are known. Those given out are kept in the data directory."""

    def __init__(self, data: str, access_key: str, secret_key: str) -> None:
        self._path = os.path.join(data, "issued-credentials.json")
        self._own = {access_key: secret_key}
        self._lock = threading.Lock()
        self._issued: dict[str, tuple[str, float]] = {}
        try:
            with open(self._path, encoding="utf-8") as file:
                self._issued = {key: (secret, until) for key, (secret, until) in json.load(file).items()}
        except FileNotFoundError:
            pass

    def secret_of(self, access_key: str) -> str | None:
        """None: nobody has this key."""
        if access_key in self._own:
            return self._own[access_key]
        secret, until = self._issued.get(access_key, ("", 0.0))
        return secret if secret and until > time.time() else None

    def learn(self, answer: bytes, lasts: float = 12 * 3600.0) -> None:
        """Keeps the keys in an answer of STS or IAM."""
        found = _ISSUING.search(answer)
        if found is None:
            return
        text = found[0].decode()
        fields = [re.search(_FIELD % (name, name), text) for name in ("AccessKeyId", "SecretAccessKey")]
        if fields[0] is None or fields[1] is None:
            return
        until = time.time() + (lasts if "<SessionToken>" in text else 10 * 365 * 86400.0)
        with self._lock:
            self._issued[fields[0][1]] = (fields[1][1], until)
            with open(os.open(self._path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(self._issued, file)
            os.replace(self._path + ".part", self._path)
