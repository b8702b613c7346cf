"""Ports that are free here, as other programs of this host see them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.ports import Ports, any_free, is_free, offered
from musterpoint.core.rollcall.agreed_ports import leaders_master_port, next_master_port

HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}


@pytest.fixture(params=["127.0.0.1", "0.0.0.0", "::1", "::"])
def taken(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port that somebody listens on, at one of this host's addresses or all."""
    address = request.param
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
        sock.bind((address, 0))
        sock.listen()
        yield sock.getsockname()[1]


def test_a_port_in_use_is_not_free(taken: int) -> None:
    assert not is_free(taken)


def test_a_port_whose_connections_have_just_ended_is_free() -> None:
    port = any_free()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with socket.create_connection(("127.0.0.1", port)) as caller:
            accepted, _ = listener.accept()
            accepted.close()  # the end that closes first keeps the port in TIME_WAIT
            assert caller.recv(1) == b""
    assert is_free(port)


@pytest.fixture
def ports() -> Iterator[Ports]:
    with Ports() as ports:
        yield ports


@pytest.fixture
def held() -> Iterator[tuple[int, int]]:
    """A port that another job of musterpoint holds, which nobody listens on; and that job's process."""
    hold = (
        "import sys; from musterpoint.core.ports import Ports; held = Ports(); "
        "print(held.take_any(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold], env=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        yield int(other.stdout.readline()), other.pid


def test_any_free_port_is_none_that_connections_are_given() -> None:
    ports = [any_free() for _ in range(50)]
    assert all(20000 <= port < 32000 for port in ports)
    assert is_free(ports[0])


def test_a_wanted_port_is_offered_where_it_is_free(taken: int, ports: Ports) -> None:
    wanted = any_free()
    free, other, any_ = offered((wanted, taken, 0), ports)
    assert free == wanted
    assert other not in (taken, 0)
    assert len({free, other, any_}) == 3
    assert all(map(is_free, (other, any_)))


def test_each_wish_gets_a_port_of_its_own(ports: Ports) -> None:
    """The port after the last one is none; nothing wanted is nothing offered."""
    wanted = any_free()
    found = offered((wanted, wanted, 0, wanted, 65536), ports)
    assert found[0] == wanted
    assert len(set(found)) == 5
    assert 20000 <= found[-1] < 32000
    assert not is_free(65536)
    assert offered((), ports) == ()


def test_a_wish_that_allows_no_other_port(taken: int, ports: Ports) -> None:
    free = any_free()
    assert offered((free,), ports, "--tf-port") == (free,)
    with pytest.raises(UsageError, match=f"--tf-port {taken}: something listens on port {taken} here"):
        offered((free, taken), ports, f"--tf-port {taken}")


def test_a_port_that_another_job_holds(held: tuple[int, int], ports: Ports) -> None:
    port, process = held
    assert is_free(port), "nobody listens yet"
    assert not ports.take(port)
    (other,) = offered((port,), ports)
    assert other != port
    said: list[str] = []
    assert leaders_master_port(None, ports, said.append, port) not in (port, 0)
    assert f"port {port} is held by another job on this host, process {process} (python" in said[0]
    assert leaders_master_port(0, ports, said.append, port) not in (port, 0)
    assert len(said) == 1, "any port was asked for"
    with pytest.raises(UsageError, match=f"--master-port {port}: .* process {process} "):
        leaders_master_port(port, ports, said.append)
    with pytest.raises(UsageError, match=f"--tf-port {port}: .* process {process} "):
        offered((port,), ports, f"--tf-port {port}")


def test_a_master_port_that_somebody_listens_on(taken: int, ports: Ports) -> None:
    with pytest.raises(UsageError, match=f"--master-port {taken}: something listens on port {taken} here"):
        leaders_master_port(taken, ports, print)
    assert leaders_master_port(None, ports, print, taken) not in (0, taken)


def test_a_hold_ends_with_its_process(ports: Ports) -> None:
    hold = "from musterpoint.core.ports import Ports; held = Ports(); print(held.take_any())"
    done = subprocess.run([sys.executable, "-c", hold], env=HERE, capture_output=True, text=True, check=True)
    assert ports.take(int(done.stdout))


def test_what_a_process_starts_does_not_inherit_a_hold(ports: Ports) -> None:
    port = ports.take_any()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False):
        ports.keep(())
        with Ports() as others:
            assert others.take(port)


@pytest.mark.parametrize("above", [1, 2])
def test_ports_of_a_process_above_are_lent_once(above: int, ports: Ports) -> None:
    port = ports.take_any()
    take = (
        "import sys; from musterpoint.core.ports import Ports; held = Ports(); "
        f"print(held.take({port}), flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", take]
    if above == 2:
        words = ["sh", "-c", '"$@"; exit', "sh", *words]
    with contextlib.ExitStack() as stack:
        answers = []
        for _ in range(2):
            pipe = stack.enter_context(subprocess.Popen(words, env=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert pipe.stdout is not None
            answers.append(pipe.stdout.readline())
    assert answers == [b"True\n", b"False\n"]


def test_the_next_attempt_has_its_port_before_the_last_one_is_let_go(ports: Ports) -> None:
    first = ports.take_any()
    second = next_master_port(None, first, ports)
    with Ports() as others:
        assert not others.take(first)
        ports.keep({second})
        assert others.take(first)
        assert not others.take(second)
        assert next_master_port(None, first - 1, ports) not in (first, second)
    assert next_master_port(5000, first, ports) == 5000


def test_one_job_takes_a_port_for_two_of_its_uses(ports: Ports) -> None:
    (port,) = offered((0,), ports)
    assert leaders_master_port(None, ports, print, port) == port


def test_a_thousand_questions_do_not_stop_the_answers(ports: Ports) -> None:
    port = ports.take_any()
    for _ in range(1000):
        with Ports() as others:
            assert not others.take(port)
