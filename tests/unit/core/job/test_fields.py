from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.job import fields


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "isn't valid JSON"),
        (b'{"a": ', "isn't valid JSON"),
        (b"\xff\xfe", "isn't UTF-8: invalid start byte at byte 0"),
        (b"[" * 100_000, "isn't valid JSON"),
    ],
)
def test_load_names_the_file_and_what_is_wrong(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "resourceconfig.json"
    path.write_bytes(data)
    with pytest.raises(UsageError) as error:
        fields.load(str(path))
    assert str(error.value).startswith(str(path))
    assert says in str(error.value)


def test_load_takes_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "hyperparameters.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": "1"}')
    assert fields.load(str(path)) == {"a": "1"}


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (fields.mapping, {"a": 1}, {"a": 1}),
        (fields.text, "x", "x"),
        (fields.text, None, ""),
        (fields.host, "algo-1-w8w6m", "algo-1-w8w6m"),
        (fields.host, "fe80::1", "fe80::1"),
        (fields.host_list, ["b", "a"], ("b", "a")),
        (fields.count, 8, 8),
        (fields.count, "8", 8),
        (fields.flag, True, True),
        (fields.flag, "True", True),
        (fields.flag, "False", False),
        (fields.flag, 1, True),
        (fields.flag, None, False),
    ],
)
def test_values_that_are_right(read: Callable[[Any, str], Any], value: Any, expected: Any) -> None:
    assert read(value, "here") == expected


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (fields.mapping, [], "an object"),
        (fields.text, 1, "a string"),
        (fields.text, "a\0", "a string without NUL characters"),
        (fields.host, "", "a host name such as algo-1"),
        (fields.host, "a b", "a host name such as algo-1"),
        (fields.host, "-a", "a host name such as algo-1"),
        (fields.host, None, "a host name such as algo-1"),
        (fields.host_list, "algo-1", 'a list of host names such as ["algo-1", "algo-2"]'),
        (fields.count, 0, "a whole number, 1 to 65536"),
        (fields.count, True, "a whole number, 1 to 65536"),
        (fields.count, "eight", "a whole number, 1 to 65536"),
        (fields.count, 1.5, "a whole number, 1 to 65536"),
        (fields.flag, "maybe", "true or false"),
        (fields.flag, [], "true or false"),
    ],
)
def test_the_message_has_place_value_and_expectation(
    read: Callable[[Any, str], Any], value: Any, expected: str
) -> None:
    with pytest.raises(UsageError) as error:
        read(value, "file.json: key")
    assert str(error.value) == f"file.json: key is {fields.shown(value)}, expected {expected}"


def test_long_values_are_shortened() -> None:
    assert fields.shown("x" * 500).endswith("...")
    assert len(fields.shown("x" * 500)) == 80
