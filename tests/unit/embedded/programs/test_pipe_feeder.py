"""What a channel's pipes are fed with: the lines of an augmented manifest, here in a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from musterpoint.embedded.programs.pipe_feeder import Referred
from musterpoint.embedded.programs.stores import StoreError


@pytest.fixture
def request_of(tmp_path: Path) -> dict[str, Any]:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"file {number}")
    lines = [{"source-ref": f"{tmp_path}/{number}.txt", "label": number} for number in (2, 0, 3, 1)]
    (tmp_path / "augmented.manifest").write_text("\n\n".join(map(json.dumps, lines)))
    asked = {"uri": f"{tmp_path}/augmented.manifest", "access": {}, "attributes": ("source-ref", "label")}
    return {**asked, "sharded": False, "place": 0, "hosts": 1}


def told(source: Referred) -> list[bytes]:
    return [b"".join(source.open(part.uri)) if part.uri else part.data for part in source.parts]


def test_attributes_come_in_the_order_of_the_lines(request_of: dict[str, Any]) -> None:
    assert told(Referred(request_of)) == [b"file 2", b"2", b"file 0", b"0", b"file 3", b"3", b"file 1", b"1"]


def test_hosts_share_the_lines(request_of: dict[str, Any]) -> None:
    found = told(Referred({**request_of, "sharded": True, "place": 1, "hosts": 2}))
    assert found == [b"file 0", b"0", b"file 1", b"1"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"source-ref": "s3://bucket/x", "label": 1}', "names 's3://bucket/x': expected a place of its own kind"),
        ('{"source-ref": "x"}', r"expected a JSON object in each line, with source-ref, label: KeyError\('label'\)"),
        ("[1]", "expected a JSON object in each line"),
        ("{", "expected a JSON object in each line"),
    ],
)
def test_what_is_no_such_manifest_is_refused(request_of: dict[str, Any], text: str, says: str) -> None:
    Path(request_of["uri"]).write_text(text)
    with pytest.raises(StoreError, match=says):
        Referred(request_of)


def test_a_file_that_is_gone_is_told_by_name(request_of: dict[str, Any], tmp_path: Path) -> None:
    source = Referred(request_of)
    (tmp_path / "2.txt").unlink()
    with pytest.raises(StoreError, match=r"there is no '2\.txt' at "):
        told(source)
