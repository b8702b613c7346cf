"""What libraries print when a peer went away: every text of the table is found, by its own pattern and as a symptom."""

from __future__ import annotations

import re

import pytest

from musterpoint.core.diagnosis.failures import kind_of
from musterpoint.core.diagnosis.peer_texts import TEXTS, PeerText, is_peer_lost


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: f"{text.library}-{text.pattern[:24]}")
def test_each_text_is_a_symptom_and_says_where_it_comes_from(text: PeerText) -> None:
    assert re.search(text.pattern, text.example, re.S)
    assert is_peer_lost(text.example)
    assert kind_of(text.example, 1) == "peer"
    assert re.match(r"seen\b|[\w-]+/[\w-]+: [\w./]+/", text.source)


OWN = [
    "google.api_core.exceptions.Forbidden: Failed to connect to GCS bucket data: 403",
    "requests.exceptions.ConnectionError: Connection closed by peer",
    "redis.exceptions.ConnectionError: Connection closed by server.",
    "psycopg2.OperationalError: server closed the connection unexpectedly",
    "paramiko.ssh_exception.SSHException: Socket closed",
    "ValueError: worker 3 has no data",
    "botocore.exceptions.ConnectionClosedError: Connection was closed before we received a valid response",
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nremote process exited",
]


@pytest.mark.parametrize("text", OWN)
def test_what_the_users_own_connections_say_is_no_symptom(text: str) -> None:
    assert not is_peer_lost(text)
