"""What others wrote: text cut and escaped, only regular files opened, fields of the right types."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any, Callable, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.base.untrusted import check_types, clip, open_regular, open_regular_nofollow, printable
from musterpoint.core.channel.names import read_hosts
from musterpoint.core.code.project import _pyproject
from musterpoint.core.job import fields
from musterpoint.core.job.model import Paths
from musterpoint.core.job.read import masker_of_files
from musterpoint.core.report.output_directory import OutputDirectory
from musterpoint.local import results
from musterpoint.local.tree import Layout

TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("\x1b\n\r\t\x9b\u202e\u2028\ud800é€😀 ")))


@given(TEXTS, st.integers(3, 50))
def test_clipping(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert len(clipped.encode("utf-8", "replace")) <= limit
    whole = text.encode("utf-8", "replace").decode()  # half of a surrogate pair becomes a question mark
    assert clipped == text or whole.startswith(clipped[:-1])


@given(TEXTS, st.integers(3, 50), st.booleans())
def test_what_is_printed_is_cut_and_harmless(text: str, most: int, lines: bool) -> None:
    shown = printable(text, most, lines)
    assert len(shown.encode()) <= most
    kept = shown.replace("\n", "").replace("\t", "") if lines else shown
    assert all(mark.isprintable() or (mark.isspace() and mark > "\x9f") for mark in kept)
    if text.isprintable() and len(text.encode()) <= most:
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"), ("a\nloss=1", r"a\nloss=1"), ("\u202eabc", r"\u202eabc"), ("\ud800", r"\ud800"),
        ("é" * 10, "é" * 10), ("é" * 11, "é" * 8 + "…"),
        ("x" * 21, "x" * 17 + "…"), ("x" * 17 + " yz!", "x" * 17 + "…"),
    ],
)  # fmt: skip
def test_what_is_printed_is_escaped_as_python_does(text: str, shown: str) -> None:
    assert printable(text, 20) == shown


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a directory": (Path.mkdir, "it is a directory"),
    "a named pipe": (os.mkfifo, "it is a named pipe"),
    "a link to one": (
        lambda path: (os.mkfifo(path.with_name("pipe")), path.symlink_to("pipe"))[1], "it is a named pipe",
    ),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "it is a device"),
    "a socket": (unix_socket, "it is a socket"),
}  # fmt: skip
READERS: dict[str, Callable[[Path], Any]] = {
    "a configuration file": lambda path: fields.load(str(path)),
    "a hosts file": lambda path: read_hosts(str(path)),
}


@pytest.mark.parametrize("what", STRANGE)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_an_error_that_says_so(
    what: str, reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, says = STRANGE[what]
    make(Path("x.json"))
    with pytest.raises((OSError, UsageError), match=f"{says}, expected a regular file"):
        READERS[reader](Path("x.json"))


@pytest.mark.parametrize("what", STRANGE)
def test_what_may_be_missing_is_then_missing(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    layout = Layout(str(tmp_path))
    for name in ("outcome.json", "failure", "timeline.json"):
        Path(layout.tree("algo-1"), "output").mkdir(parents=True, exist_ok=True)
        os.chdir(Path(layout.tree("algo-1"), "output"))
        STRANGE[what][0](Path(name))
        Path("pipe").unlink(missing_ok=True)
    assert results.read_host_files(layout, "algo-1") == results.HostFiles(None, "")
    with contextlib.closing(OutputDirectory(Paths(output=layout.output), shared=True)) as output:
        assert results.write_timeline(layout, ("algo-1",), [], output) == ""
    os.chdir(tmp_path)
    STRANGE[what][0](Path("pyproject.toml"))
    assert _pyproject(str(tmp_path)) == (False, False, "setuptools")


@pytest.mark.parametrize("what", STRANGE)
def test_a_strange_file_beside_the_others_hides_no_secret(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "input" / "config").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "input" / "config")
    STRANGE[what][0](Path("a.json"))
    Path("b.json").write_text('{"password": "other-word-2"}')
    assert masker_of_files({"SAGEMAKER_BASE_DIR": str(tmp_path)}).mask_user("other-word-2") == "***"


def test_links_to_files_are_files_but_where_the_program_wrote(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    with open(tmp_path / "link", opener=open_regular) as file:
        assert file.read() == "text"
    with pytest.raises(OSError, match="symbolic links"):
        open_regular_nofollow(str(tmp_path / "link"), os.O_RDONLY)
    os.close(open_regular_nofollow(str(tmp_path / "file"), os.O_RDONLY))


def test_what_a_program_left_in_place_of_the_report_is_not_followed(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    output = Path(layout.tree("algo-1"), "output")
    output.mkdir(parents=True)
    (tmp_path / "outside").write_text('{"code": 0}')
    (output / "failure").symlink_to(tmp_path / "outside")
    (output / "outcome.json").symlink_to(tmp_path / "outside")
    assert results.read_host_files(layout, "algo-1") == results.HostFiles(None, "")
    (output / "outcome.json").unlink()
    (output / "outcome.json").write_text("[" * 100_000)
    assert results.read_host_files(layout, "algo-1").outcome is None


def test_a_configuration_file_is_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "LARGEST_FILE", 1 << 20)
    path = tmp_path / "resourceconfig.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # no blocks of the disk, and more than memory
    with pytest.raises(UsageError, match=r"resourceconfig.json is longer than 1 MiB"):
        fields.load(str(path))


class Row(NamedTuple):
    name: Any = "algo-1"
    count: Any = 1
    here: Any = True
    rank: Any = None


TYPES = {"name": (str,), "count": (int,), "here": (bool,), "rank": (int, type(None))}


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (Row(name=None), "a row's name is None"),
        (Row(count="1"), "a row's count is '1'"),
        (Row(count=True), "a row's count is True"),
        (Row(count=1.0), "a row's count is 1.0"),
        (Row(here=1), "a row's here is 1"),
        (Row(rank=False), "a row's rank is False"),
    ],
)
def test_fields_of_other_types(row: Row, complaint: str) -> None:
    check_types(Row("", 0, False, 0), TYPES)
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        check_types(row, TYPES, "a row's ")
