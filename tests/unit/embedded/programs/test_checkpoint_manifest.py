"""A manifest that others have written is read, or refused by name; nothing of it is trusted."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from typing import Any, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.embedded.programs.checkpoint_manifest import (
    Entry,
    Manifest,
    Part,
    _digest,
    belongs,
    contradiction,
    for_host,
)  # fmt: skip
from musterpoint.embedded.programs.transfer_s3 import StoreError

FILES = (Entry("a/b", 3, "x" * 64, "files/0/x/a", 0, True, "", 5), Entry("last", 0, "", "", 0, True, "a", 0))
WHOLE = Manifest(3, "job", 1, (Part("a", "a", 0, 1, FILES, ("a/b",), True, {"latest": "a"}, 0),), 2)
ODD = [None, True, -1, 1 << 70, 1.5, "", "x", "../y", [], {}, [1], {"a": 1}, "\ud800", "/abs"]


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*above, name)
        yield from places(each, (*above, name))


@pytest.mark.parametrize("parts", ["", [], {}])
def test_a_manifest_has_parts(parts: Any) -> None:
    content = {**json.loads(WHOLE.encode()), "parts": parts}
    del content["sha256"]
    with pytest.raises(StoreError, match="parts"):
        Manifest.decode(json.dumps({**content, "sha256": _digest(content)}).encode())


@given(st.data())
def test_any_field_may_be_anything(data: st.DataObject) -> None:
    content = json.loads(WHOLE.encode())
    del content["sha256"]
    *above, last = data.draw(st.sampled_from(list(places(content))))
    inner = content
    for name in above:
        inner = inner[name]
    inner[last] = data.draw(st.sampled_from(ODD))
    try:
        found = Manifest.decode(json.dumps({**content, "sha256": _digest(content)}).encode())
    except StoreError:
        return
    if found is not None:
        assert found.names and found.size >= 0 and Manifest.decode(found.encode()) == found
        assert all(isinstance(each.path, str) for each in for_host(found, 0, 2, "own"))


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b"[]", b'{"sha256": 1}', WHOLE.encode()[:-9]])
def test_half_a_manifest_is_none(data: bytes) -> None:
    assert Manifest.decode(data) is None


def test_a_host_has_its_own_file_whatever_another_hosts_family_is_called() -> None:
    """The other one's file of that name comes first, in a checkpoint of its own."""
    entries = [Entry("a/w", 3, "x" * 64, f"files/{place}/x/a", place, True) for place in (0, 1)]
    parts = [Part("a", family, entry.place, 2, (entry,), (), False, {}, 0) for family, entry in zip("ba", entries)]
    for order in (parts, parts[::-1]):
        manifest = Manifest(3, "job", 2, tuple(order))
        assert [for_host(manifest, place, 3, "all") for place in range(3)] == [[entries[0]], [entries[1]], [entries[0]]]


def test_what_names_a_checkpoint_is_the_first_hosts() -> None:
    parts = [Part(name, name, place, 2, (), (), True, {"latest": name}, 0) for place, name in enumerate("ab")]
    assert Manifest(3, "job", 2, tuple(parts)).texts == {"latest": "a"}


def _entry(path: str, place: int, text: str = "", everywhere: bool = True, link: str = "") -> Entry:
    digest = "" if link else hashlib.sha256(text.encode()).hexdigest()
    return Entry(path, len(text), digest, "" if link else f"files/{place}/x/{path}", place, everywhere, link)


def _parts(*entries: Entry) -> list[Part]:
    hosts = sorted({entry.place for entry in entries})
    return [
        Part("step1", "step#", place, 3, tuple(e for e in entries if e.place == place), (), False, {}, 0)
        for place in hosts
    ]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([_entry("step1/w1", 1, "mine"), _entry("step1/w2", 2, "mine")], ""),
        ([_entry("step1/w", 1, "same"), _entry("step1/w", 2, "same")], ""),
        ([_entry("step1/w", 1, "one"), _entry("step1/w", 2, "other")], "b and c have step1/w, and not the same"),
        ([_entry("step1/w", 1, link="x"), _entry("step1/w", 2, "other")], "b and c have step1/w, and not the same"),
        ([_entry("step1/w", 1, "one", everywhere=False), _entry("step1/w", 2, "other")], "b and c have step1/w"),
        ([_entry("step1/own", 1, "one", everywhere=False), _entry("step1/own", 2, "two", everywhere=False)], ""),
        ([_entry("step1/w", 0, "one"), _entry("step1/w", 2, "other")], ""),  # the first host's is everybody's
        ([_entry("step1", 1, "one"), _entry("step1/w", 2, "other")], "b and c can't have step1 as a file and as a"),
        ([_entry("step1/w", 0, "x"), _entry("step1/w/deep/x", 1, "y")], "a and b can't have step1/w as a file"),
    ],
)
def test_hosts_that_contradict_each_other_are_named(entries: list[Entry], said: str) -> None:
    parts = _parts(*entries)
    found = contradiction(parts, ["a", "b", "c"])
    assert found.startswith(said) if said else not found
    whole = Manifest(1, "j", 3, tuple(parts))
    if said:
        with pytest.raises(StoreError, match=r"isn't what musterpoint writes: host \d and host \d"):
            Manifest.decode(whole.encode())
    else:
        assert Manifest.decode(whole.encode()) == whole


@pytest.mark.parametrize(
    ("name", "path", "fits"),
    [
        ("step1", "step1/a/b", True),
        ("step1", "step10/a", False),
        ("step1", "latest", False),
        ("run/ck-1", "run/ck-1.index", True),
        ("run/ck-1", "run/ck-2.index", False),
        ("final.pt", "final.pt", True),
        (".", "model.bin", True),
        (".", "step1/w0", False),
        ("run/*.ckpt", "run/a.ckpt", True),
        ("run/*.ckpt", "run/train.py", False),
    ],
)
def test_files_belong_to_their_checkpoint(name: str, path: str, fits: bool) -> None:
    assert belongs(name, path) == fits
    plain = Part(name, "f", 1, 2, (_entry(path, 1, "x"),), (), False, {}, 0).plain()
    if fits:
        assert Part.of(plain).files[0].path == path
    else:
        with pytest.raises(ValueError, match="is no file of"):
            Part.of(plain)


@pytest.mark.parametrize(
    ("name", "path", "link", "fits"),
    [
        ("step1", "last", "step1", True),
        ("step1", "last-file", "step1/state", True),
        ("run/step1", "run/last", "step1", True),
        ("step1", "last", "step2", False),
        ("step1", "step2/w0", "../step1/w0", False),
        ("run/step1", "last", "run/step1", False),
    ],
)
def test_links_beside_a_checkpoint_that_lead_to_it_are_its_own(name: str, path: str, link: str, fits: bool) -> None:
    entry = _entry(path, 1, "x")._replace(link=link, size=0, sha256="", key="")
    plain = Part(name, "f", 1, 2, (entry,), (), False, {}, 0).plain()
    with nullcontext() if fits else pytest.raises(ValueError, match="is no file of"):
        Part.of(plain)


def test_deepspeed_s_script_is_the_first_host_s() -> None:
    for place in (0, 1):
        plain = Part("step1", "f", place, 2, (_entry("zero_to_fp32.py", place, "x"),), (), False, {}, 0).plain()
        if place:
            with pytest.raises(ValueError, match=r"zero_to_fp32\.py is no file of step1"):
                Part.of(plain)
        else:
            Part.of(plain)
