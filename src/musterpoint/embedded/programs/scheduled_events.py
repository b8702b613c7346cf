"""The sidecar that watches Azure's scheduled events: this virtual machine is about to be taken away, or to restart.

``python -I -S THIS URL``: the address of Azure's metadata service. It ends at once where that doesn't answer within a
second. Lines on stdout: ``watching NAME``, then ``event`` and a JSON object for each event that ends this machine; an
event is reported once. It ends when its stdin does. Source: Microsoft, "Scheduled Events for Linux VMs" (the first
answer may take two minutes; Preempt comes 30 s before, Terminate 5 to 15 minutes, Reboot and Redeploy 10 to 15).
"""

from __future__ import annotations

import http.client
import json
import os
import select
import sys
from typing import Any

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
ENDING = ("Preempt", "Terminate", "Reboot", "Redeploy")
"""Types after which nothing of this machine's processes is left. Freeze is a pause of seconds."""
AT_ONCE, FIRST, LATER = 1.0, 130.0, 10.0
"""Seconds to wait for an answer: at the start, for the first list of events, for later ones."""
EVERY = 2.0
"""Seconds between questions: the notice of a preemption is 30 s."""


def main() -> None:
    host, _, port = sys.argv[1].removeprefix("http://").rstrip("/").partition(":")
    address = (host, int(port or 80))
    name = ask(address, NAME, AT_ONCE)
    if name is None:
        return
    say(f"watching {name}")
    seen: set[str] = set()
    patience = FIRST
    while True:
        for event in events(ask(address, EVENTS, patience), name):
            if event["id"] not in seen:
                seen.add(event["id"])
                say("event " + json.dumps(event))
        patience = LATER
        if select.select([0], [], [], EVERY)[0] and not os.read(0, 4096):
            return


def ask(address: tuple[str, int], path: str, patience: float) -> str | None:
    """The text at ``path``; None where there is no answer, or another than 200."""
    connection = http.client.HTTPConnection(*address, timeout=patience)
    try:
        connection.request("GET", path, headers={"Metadata": "true"})
        response = connection.getresponse()
        text = response.read(1 << 20).decode("utf-8", "replace")
        return text if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def events(text: str | None, machine: str) -> list[dict[str, str]]:
    """The events in ``text`` that end ``machine`` (empty: any): their id, type and time."""
    try:
        listed: Any = json.loads(text or "{}").get("Events") or []
        return [
            {"id": str(event["EventId"]), "type": event["EventType"], "at": str(event.get("NotBefore") or "")}
            for event in listed
            if event["EventType"] in ENDING
            and event.get("EventStatus") in ("Scheduled", "Started")
            and (not machine or machine in (event.get("Resources") or ()))
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
