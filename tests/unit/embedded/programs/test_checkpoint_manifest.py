"""A manifest that others have written is read, or refused by name; nothing of it is trusted."""

from __future__ import annotations

import json
from typing import Any, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.embedded.programs.checkpoint_manifest import Entry, Manifest, Part, _digest, for_host
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
