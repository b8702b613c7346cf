"""What the trainers of this directory share: the addresses of other roles, and a question to one of their servers."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any


def hosts_of(role: str) -> list[str]:
    """The addresses of a role's hosts, in the job's order."""
    return os.environ[f"MUSTER_ROLE_HOSTS_{role.upper()}"].split(",")


def ask(host: str, port: int, path: str, **question: Any) -> dict[str, Any]:
    """The answer of a server to a JSON question."""
    body = json.dumps(question).encode()
    with urllib.request.urlopen(f"http://{host}:{port}{path}", body, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer
