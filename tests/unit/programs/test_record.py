"""What the uploader remembers of its predecessor."""

from __future__ import annotations

from pathlib import Path

from musterpoint.programs.upload_ledger import read_record, write_record


def test_the_record_outlives_the_uploader_that_was_killed_while_writing_it(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.touch()
    write_record(str(record), "a", (1, 2, 3))
    write_record(str(record), "ä\n", (4, 5, 6))
    with record.open("a") as file:
        file.write('\n["b", 7')
    write_record(str(record), "c", (8, 9, 10))
    write_record(str(record), "a", (1, 3, 3))
    assert read_record(str(record)) == {"a": (1, 3, 3), "ä\n": (4, 5, 6), "c": (8, 9, 10)}
