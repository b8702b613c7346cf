"""Whose leftovers may be removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.local import docker_cleanup


def test_a_process_that_ended_is_dead_even_as_a_zombie() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = docker_cleanup.owner_of(process.pid)
        assert len(owner.split("/")) == 4 and not docker_cleanup.is_dead(owner)
        process.communicate(b"\n")
    assert docker_cleanup.is_dead(owner)


def test_another_process_of_the_same_number_is_another_process() -> None:
    host, namespace, pid, _ = docker_cleanup.owner_of(os.getpid()).split("/")
    assert docker_cleanup.is_dead("/".join((host, namespace, pid, "an earlier start")))


@pytest.mark.parametrize(
    "owner", ["elsewhere/{namespace}/1/x", "{host}/another/1/x", "{host}/{namespace}/one/x", "", "x"]
)
def test_what_cannot_be_seen_from_here_is_left_alone(owner: str) -> None:
    host, namespace, *_ = docker_cleanup.owner_of(os.getpid()).split("/")
    assert not docker_cleanup.is_dead(owner.format(host=host, namespace=namespace))


def test_foreign_files_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("/nowhere")
    mine = os.stat(tmp_path).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: mine or 12345)
    found = docker_cleanup._foreign(str(tmp_path))
    assert found == ("" if mine else str(tmp_path / "a"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert docker_cleanup._foreign(str(tmp_path)) == ""
