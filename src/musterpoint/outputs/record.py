"""What has gone up, on record for the uploader that comes after one that was killed. Runs without musterpoint."""

from __future__ import annotations

import json

from musterpoint.outputs.ledger import Version


def read_record(path: str) -> dict[str, Version]:
    """What an uploader before this one has uploaded; the last line of one that was killed may be half a line."""
    found: dict[str, Version] = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                name, size, changed, inode = json.loads(line)
            except ValueError:
                continue
            found[name] = (size, changed, inode)
    return found


def write_record(path: str, name: str, version: Version) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n" + json.dumps([name, *version]))
