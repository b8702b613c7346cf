"""The program that starts Horovod's own rendezvous server; ``horovod`` here is a small package in its place."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ....ports import free_port
from .conftest import program_of

HOROVOD = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class RendezvousHandler(BaseHTTPRequestHandler):
    pass

class RendezvousHTTPServer(HTTPServer):
    def __init__(self, address, handler, verbose):
        super().__init__(address, handler)
        print("listens on", *self.server_address, flush=True)
"""


@pytest.fixture
def words(root: Path, tmp_path: Path) -> list[str]:
    """The command line without the port and the address, for a Python that has Horovod."""
    package = tmp_path / "horovod" / "runner" / "http"
    package.mkdir(parents=True)
    (package / "http_server.py").write_text(HOROVOD)
    return program_of(root, tmp_path, "horovod_rendezvous.py")


@pytest.mark.parametrize(("address", "bound"), [("127.0.0.1", "127.0.0.1"), ("198.51.100.1", "0.0.0.0")])
def test_it_listens_on_the_address_alone_where_that_is_its_own(words: list[str], address: str, bound: str) -> None:
    port = str(free_port())
    with subprocess.Popen([*words, port, address], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == f"listens on {bound} {port}\n"
        server.kill()


def test_a_port_that_is_taken_is_named(words: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([*words, str(port), "127.0.0.1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = f"Horovod's rendezvous server can't listen on 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}\n"
    assert done.stderr == said


def test_a_python_without_horovod_is_named(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "horovod/runner/http/http_server.py").write_text("import no_such_module\n")
    done = subprocess.run([*words, "7701", "127.0.0.1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{sys.executable} can't import horovod.runner (No module named 'no_such_module')" in done.stderr
