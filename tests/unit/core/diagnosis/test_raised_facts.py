"""What a rank tells of the exception that ends it: read with care, and preferred where its output says less."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from musterpoint.core.diagnosis.evidence import DiagnosisContext, Evidence
from musterpoint.core.diagnosis.peer_texts import TEXTS, PeerText, is_peer_lost
from musterpoint.core.diagnosis.program_failures import failure_of_rank, kind_of
from musterpoint.core.diagnosis.raised_facts import MOST_CAUSES, MOST_FRAMES, RaisedFacts

LOAD = {"text": "LookupError: no such shard: 17", "frames": [["train.py", 9, "<module>"], ["train.py", 4, "load"]]}
LOST = {"text": "RuntimeError: [gloo/transport/tcp/pair.cc] Connection closed by peer [::1]", "frames": []}
HERE = DiagnosisContext("algo-2")
OTHER = b'Traceback (most recent call last):\n  File "x.py", line 1, in f\nKeyError: 3\n'


def line(*chain: Any, pid: Any = 7) -> str:
    return "raised " + json.dumps({"pid": pid, "chain": list(chain)})


def reason(tail: bytes, *chain: Any, status: int = 1) -> str:
    facts = RaisedFacts.from_line(line(*chain))
    return failure_of_rank(Evidence(3, 1, status, 1.0, tail=tail, raised=facts), HERE).reason


@pytest.mark.parametrize("tail", [b"", b"the last line\n", OTHER], ids=["nothing", "a line", "another exception"])
def test_what_the_rank_told_leads_where_its_output_says_something_else(tail: bytes) -> None:
    assert reason(tail, LOAD).split("\n")[:3] == [
        "LookupError: no such shard: 17",
        "rank 3 (local rank 1) on algo-2, exit code 1",
        '  File "train.py", line 4, in load',
    ]


def test_its_output_leads_where_that_has_the_same_exception() -> None:
    tail = OTHER.replace(b"KeyError: 3", b"LookupError: no such shard: 17, of 16")
    assert reason(tail, LOAD).startswith("LookupError: no such shard: 17, of 16\n")


def test_it_makes_no_end() -> None:
    """The status is the stub's or the kernel's; what was told only explains a 1."""
    assert "LookupError" not in reason(b"the last line\n", LOAD, status=9)


def test_a_lost_peer_in_its_chain_makes_a_symptom() -> None:
    wrapped = {"text": "HorovodInternalError: it is over", "frames": [["/lib/python3.11/x.py", 1, "f"]]}
    facts = RaisedFacts.from_line(line(wrapped, LOST))
    assert failure_of_rank(Evidence(3, 1, 1, 1.0, raised=facts), HERE).kind == "peer"
    facts = RaisedFacts.from_line(line(LOAD))
    assert failure_of_rank(Evidence(3, 1, 1, 1.0, raised=facts), HERE).kind == "user"


@pytest.mark.parametrize(
    "text",
    [
        "raised ",
        "raised 3",
        "raised {}",
        "raised " + "[" * 100_000,
        line(),
        line(LOAD, pid="7"),
        line(LOAD, pid=True),
        line(*[LOAD] * (MOST_CAUSES + 1)),
        line({"text": 3, "frames": []}),
        line({"text": "x", "frames": [["f", 1, "g"]] * (MOST_FRAMES + 1)}),
        line({"text": "x", "frames": [["f", "1", "g"]]}),
        line({"text": "x", "frames": [["f", -1, "g"]]}),
        line({"text": "x", "frames": [["f", 10**400, "g"]]}),
        line([]),
    ],
)
def test_what_is_no_exception_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expect|Expecting|recursion|depth"):
        RaisedFacts.from_line(text)


def test_what_it_says_is_printable_and_short() -> None:
    (one,) = RaisedFacts.from_line(
        line({"text": "E: \x1b[31m\ud800\n" + "x\n" * 9000, "frames": [["\x1b", 1, "\0"]]})
    ).chain
    assert "\x1b" not in one.text + one.frames[0].file + one.frames[0].function
    assert one.text.count("\n") < 8


def test_what_it_was_raised_from_is_told_too() -> None:
    said = reason(b"", {**LOAD, "caused": 1}, {"text": "KeyError: 17", "frames": []}).split("\n")
    assert said[2] == "raised from KeyError: 17"
    assert "KeyError" not in reason(b"", {**LOAD, "caused": 0}, {"text": "KeyError: 17", "frames": []})


def test_of_two_exceptions_of_one_class_the_told_one_leads() -> None:
    tail = OTHER.replace(b"KeyError: 3", b"LookupError: no such shard: 16") + b"step 1\n"
    assert reason(tail, LOAD).startswith("LookupError: no such shard: 17\n")


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
