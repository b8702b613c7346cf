"""The watcher of Azure's scheduled events, against a stand-in of the metadata service."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Iterator

import pytest

from musterpoint.embedded.programs import scheduled_events

from ....azure import Metadata, event


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    service = Metadata()
    yield service
    service.close()


def watch(url: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-I", "-S", scheduled_events.__file__, url]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_event_that_ends_this_machine_is_reported_once(metadata: Metadata) -> None:
    metadata.events = [event("Freeze", "vm1"), event("Preempt", "vm2"), event("Terminate", "vm1", status="Completed"),
                       event("Reboot", "vm2", "vm1"), event("Reboot", "vm2", "vm1")]  # fmt: skip
    with watch(metadata.url) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "watching vm1\n"
        word, _, rest = process.stdout.readline().partition(" ")
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait() == 0
    assert (word, json.loads(rest)["type"]) == ("event", "Reboot")


def test_nothing_is_watched_where_nobody_answers() -> None:
    metadata = Metadata()
    metadata.close()
    done = subprocess.run(
        [sys.executable, "-I", "-S", scheduled_events.__file__, metadata.url], stdin=subprocess.PIPE,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"Events": 3}', '{"Events": [3]}', '{"Events": [{}]}', None])
def test_an_answer_of_another_form_is_no_event(text: Any) -> None:
    assert scheduled_events.events(text, "vm1") == []


def test_without_a_name_every_event_counts() -> None:
    text = json.dumps({"Events": [event("Preempt", "vm9")]})
    assert [found["type"] for found in scheduled_events.events(text, "")] == ["Preempt"]
