"""Hosts of a job that lie: of their part of a checkpoint, and of the data that they have before an attempt.

What must hold: no lie ends the leader. What another host has saved is restored there as it was saved, and so is what
names the checkpoint; a part that its host may not have is refused, and that host named. A host that says at a point
what it may not say is lost, and the others agree without it.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import queue
import random
import re
import tempfile
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from fuzzers.findings import MOST_WRONG, Findings
from fuzzers.rollcall import NASTY, PATIENCE, Host, Seat, free_port
from musterpoint.core.channel.peers import PeerLost
from musterpoint.core.channel.topics.consultations import MOST_TEXT
from musterpoint.core.channel.topics.data_points import TOPIC, DataHere, DataThere, decide
from musterpoint.embedded.programs.checkpoint_keeper import Keeper
from musterpoint.embedded.programs.checkpoint_manifest import Entry, Part
from musterpoint.embedded.programs.checkpoint_restore import restore
from musterpoint.embedded.programs.transfer import Terms
from musterpoint.embedded.programs.transfer_s3 import StoreError

HOSTS = ("honest", "liar", "third")
NAME, EVIL = "global_step1", b"EVIL"
TEXTS = {"latest": NAME}
KEY = "parts/1/x-000001.json"
PATHS = (
    f"{NAME}/w0", f"{NAME}/w1", f"{NAME}/w2", "latest", "newest", "checkpoint", f"{NAME}/latest", "other/w0",
    "../outside", "/tmp/outside", ".muster-ck0/own", "", ".",
)  # fmt: skip
KEYS = (
    "files/0/x/w0", "files/2/x/w2", "files/1/x/evil", "files/1/../0/x/w0", "files/10/x/evil", "files/1", "manifests/1",
    "parts/1/x-000001.json", "owners/0000001.json", "../evil", "",
)  # fmt: skip
TOLD = (
    KEY, "parts/0/x-000001.json", "parts/2/x-000001.json", "parts/1/../0/x-000001.json", "parts/1", "/etc/passwd",
    "../x", "files/1/x/evil",
)  # fmt: skip


def fuzz(seed: int, inputs: int) -> Findings:
    draw, wrong, points = random.Random(seed), list[str](), inputs // 4
    for _ in range(inputs - points):
        with tempfile.TemporaryDirectory(prefix="muster-fuzz-") as folder:
            wrong += Lie(Path(folder), draw).wrong()
        if len(wrong) >= MOST_WRONG:
            return Findings(inputs, tuple(wrong))
    return Findings(inputs, tuple((wrong + lies_at_points(draw, points))[:MOST_WRONG]))


# -- of a part of a checkpoint --


class Lie:
    """One checkpoint of three hosts, of which the second lies about its part."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self._folder, self._store, self._draw = folder, folder / "store", draw
        self._parts = [self._part(place) for place in range(len(HOSTS))]
        self.told, self.text = KEY, json.dumps(self._parts[1].plain())
        self.is_true = draw.random() < 0.05
        if not self.is_true:
            for _ in range(draw.choice((1, 1, 2, 3))):
                self._lie()

    def _write(self, key: str, data: bytes) -> None:
        path = self._store / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def _part(self, place: int) -> Part:
        data = f"of {HOSTS[place]}".encode()
        key = f"files/{place}/x/w{place}"
        self._write(key, data)
        entry = Entry(f"{NAME}/w{place}", len(data), hashlib.sha256(data).hexdigest(), key, place, True)
        texts = TEXTS if not place else {}
        return Part(NAME, "global_step#", place, len(HOSTS), (entry,), (), not place, texts, 0)

    def _lie(self) -> None:
        draw = self._draw
        if draw.random() < 0.1:
            self.told = draw.choice(TOLD)
            return
        if draw.random() < 0.05:
            self.text = draw.choice(("", "no json", "[" * 5000, "{}", "[]", "1", self.text[: len(self.text) // 2]))
        try:
            part = json.loads(self.text)
        except (ValueError, RecursionError):
            return
        if not isinstance(part, dict) or "files" not in part:
            return
        what = draw.choice(("text", "entry", "entry", "field", "anything"))
        if what == "text":
            part["texts"] = {draw.choice(PATHS): draw.choice(("EVIL", NAME, "global_step9", "\ud800"))}
        elif what == "entry" and isinstance(part["files"], list):
            self._write("files/1/x/evil", EVIL)
            digest = hashlib.sha256(EVIL).hexdigest()
            place, everywhere = draw.choice((0, 1, 2, 3, -1)), draw.random() < 0.8
            link = draw.choice(("", "", "", "", "w1", "../latest", "../../outside", "/etc/passwd"))
            part["files"].append([draw.choice(PATHS), 4, digest, draw.choice(KEYS), place, everywhere, link, 0])
        elif what == "field":
            part[draw.choice(list(part))] = draw.choice((0, 1, 2, 3, True, "aaa", "a/b", NAME, f"{NAME}/w0"))
        else:
            part[draw.choice(list(part))] = copy.deepcopy(draw.choice(NASTY))
        self.text = json.dumps(part)

    def wrong(self) -> list[str]:
        """Says what doesn't hold."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                wrong = self._kept() or [each for place in range(len(HOSTS)) for each in self._restored(place)]
            except Exception:
                wrong = [traceback.format_exc()]
        if self.is_true and "problem" in said.getvalue():
            wrong.append(f"what is true was refused: {said.getvalue()}")
        for line in said.getvalue().splitlines():
            if "is refused" in line and HOSTS[1] not in line:
                wrong.append(f"the liar isn't named: {line}")
        if self._folder.joinpath("outside").exists():
            wrong.append("a file outside was made")
        return [f"{each}; told {self.told}, {self.text[:1500]}" for each in wrong]

    def _kept(self) -> list[str]:
        """Plays the leader's keeper; what doesn't hold."""
        directory = self._folder / "ck0"
        directory.mkdir()
        request = {
            "directory": str(directory), "uri": str(self._store), "access": {}, "place": 0, "hosts": len(HOSTS),
            "names": HOSTS, "job": "j", "owner": 0, "keep": 3, "marks": (), "ranks": 3, "first": 0, "own": 1,
            "attempt": 0, "run": "r", "began": 0, "told": [],
        }  # fmt: skip
        keeper = Keeper(request)
        for place in (1, 2):
            self._write(f"parts/{place}/x-000001.json", json.dumps(self._parts[place].plain()).encode())
        with contextlib.suppress(UnicodeEncodeError):
            self._write(KEY, self.text.encode())
        keeper._gathering.add(self._parts[0])
        keeper._handle("part", {"place": 1, "name": NAME, "key": self.told})
        keeper._handle("part", {"place": 2, "name": NAME, "key": "parts/2/x-000001.json"})
        for place in (1, 2):
            keeper._handle("ended", place)
        keeper._read_parts()
        keeper._settle_parts()
        is_kept = any((self._store / "manifests").glob("*.json"))
        return [f"what is true isn't kept: {keeper._problem}"] if self.is_true and not is_kept else []

    def _restored(self, place: int) -> list[str]:
        directory = self._folder / f"ck{place}"
        directory.mkdir(exist_ok=True)
        request = {
            "uri": str(self._store), "access": {}, "directory": str(directory), "place": place, "hosts": len(HOSTS),
            "which": self._draw.choice(("own", "all")), "job": "j", "number": None, "claims": "",
        }  # fmt: skip
        try:
            found = restore(request, Terms())
        except StoreError as error:
            return [] if "EVIL" in self.text or self.told != KEY else [f"no restore: {error}"]
        if not found["number"]:
            return []
        wrong = []
        for other in (0, 2) if place != 1 else ():  # what it gets itself is its own
            path = directory / NAME / f"w{other}"
            expected = f"of {HOSTS[other]}"
            if not path.is_file() or path.is_symlink() or path.read_text() != expected:
                wrong.append(f"host {place} has {path.name} not as host {other} saved it")
        for path in directory.rglob("*"):
            name = path.relative_to(directory).as_posix()
            if name not in (NAME, "latest") and not name.startswith(f"{NAME}/"):
                wrong.append(f"host {place} has {name}, which is no file of the checkpoint")
        if (directory / "latest").read_text() != NAME:
            wrong.append(f"host {place} has another name of the checkpoint")
        return wrong


# -- at a point before an attempt --


def lies_at_points(draw: random.Random, count: int) -> list[str]:
    """A host that says anything at a point to which the others come."""
    wrong, tried = list[str](), 0
    while tried < count and len(wrong) < MOST_WRONG:
        port = free_port()
        hosts = [Host(name, port, "") for name in ("algo-1", "algo-3")]
        seat = Seat(port, "")
        for host in hosts:
            host.gathered.wait(PATIENCE)
        attempt = 0
        while tried < count and not any(isinstance(event, PeerLost) for event in hosts[0].events):
            tried, attempt = tried + 1, attempt + 1
            wrong += _lies(draw, hosts, seat, attempt)
        seat.close()
        for host in reversed(hosts):
            host.leave()
    return wrong


def _lies(draw: random.Random, hosts: list[Host], seat: Seat, attempt: int) -> list[str]:
    true = {"t": "datahere", **DataHere(attempt, "there", False, False, 3)._asdict()}
    message = _mutated(draw, true)
    answers: queue.SimpleQueue[DataThere | None] = queue.SimpleQueue()

    def consult(host: Host) -> None:
        assert host.peers is not None
        said = DataHere(attempt, "there", False, False, 3)
        host.peers.topic(TOPIC).consult(said, partial(decide, owner=5), answers.put, PATIENCE)

    def send(what: dict[str, Any]) -> None:
        with contextlib.suppress(ValueError):
            seat.say(json.dumps(what).encode())

    order = [partial(send, message), *(partial(host.post, partial(consult, host)) for host in hosts)]
    draw.shuffle(order)
    for act in order:
        act()
    is_lie = not _may_be_said(message)
    if message is not true and not is_lie:
        send(true)
    try:
        found = [answers.get(timeout=PATIENCE) for _ in hosts]
    except queue.Empty:
        return [f"no answer after {message!r:.500}: {[host.error for host in hosts]}"]
    wrong = [f"{host.me} ended with {host.error!r} after {message!r:.500}" for host in hosts if host.error is not None]
    wrong += [f"a bug of ours, {each}: {message!r:.500}" for each in hosts[0].rows if each[0] == "internal-error"]
    if any(each is None or each.owner != 5 or each.attempt != attempt for each in found):
        wrong.append(f"the others were told {found} after {message!r:.500}")
    hosts[0].settle()
    if is_lie and not any(isinstance(event, PeerLost) and event.host == "algo-2" for event in hosts[0].events):
        wrong.append(f"the liar isn't lost after {message!r:.500}")
    return wrong


def _mutated(draw: random.Random, true: dict[str, Any]) -> dict[str, Any]:
    message = dict(true)
    if draw.random() < 0.3:
        texts = ("no json", "", "{}", '{"owner": "x"}', "[" * 9000, "1" * 500, '"\\ud800"', "9" * (MOST_TEXT + 1), None)
        message = {"t": "ask", "point": draw.choice(("data-0-there", "check")), "text": draw.choice(texts)}
    for _ in range(draw.choice((0, 1, 1, 2))):
        name = draw.choice([*list(message)[1:], "owner"])
        if draw.random() < 0.1:
            message.pop(name, None)
        else:
            message[name] = copy.deepcopy(draw.choice((*NASTY, 3, 7, "new", "there")))
    try:
        json.dumps(message, allow_nan=False)
    except ValueError:
        return true  # that is no message at all: a connection ends by it, and the host calls again
    return true if message == true else message


def _may_be_said(message: dict[str, Any]) -> bool:
    kinds: dict[str, Any] = {
        "t": str,
        "attempt": int,
        "about": str,
        "has_failed": bool,
        "is_new": bool,
        "number": (int, type(None)),
    }
    if message.get("t") == "ask":
        kinds = {"t": str, "point": str, "text": str}
    if message.keys() != kinds.keys() or not all(isinstance(message[name], kinds[name]) for name in kinds):
        return False
    if "text" in message:
        is_point = re.fullmatch(r"[a-z]{1,60}(-[0-9]{1,3})?", message["point"]) is not None
        return is_point and message["text"] in ("{}", '{"owner": "x"}', "0")
    attempt, number = message["attempt"], message["number"]
    numbers = [each for each in (attempt, number) if each is not None]
    return (
        message["about"] in ("new", "there", "agreed", "over")
        and not any(isinstance(each, bool) or each < 0 for each in numbers)
        and attempt <= 2**31
        and (number is None or number < 10**12)
    )
