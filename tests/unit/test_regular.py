"""Only regular files are opened, and nothing is waited for."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.channel.names import read_hosts
from musterpoint.code.project import _pyproject
from musterpoint.errors import UsageError
from musterpoint.job import fields
from musterpoint.job.model import Paths
from musterpoint.job.secrets import masker_of_files
from musterpoint.local import results
from musterpoint.local.tree import Layout
from musterpoint.report.output_directory import OutputDirectory
from musterpoint.untrusted import regular, regular_itself


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a directory": (Path.mkdir, "it is a directory"),
    "a named pipe": (fifo, "it is a named pipe"),
    "a link to one": (link_to_fifo, "it is a named pipe"),
    "a device": (device, "it is a device"),
    "a socket": (unix_socket, "it is a socket"),
}
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
    with contextlib.closing(OutputDirectory(Paths(output=layout.output), shared=True)) as room:
        assert results.write_timeline(layout, ("algo-1",), [], room) == []
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
    with open(tmp_path / "link", opener=regular) as file:
        assert file.read() == "text"
    with pytest.raises(OSError, match="symbolic links"):
        regular_itself(str(tmp_path / "link"))
    os.close(regular_itself(str(tmp_path / "file")))


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
