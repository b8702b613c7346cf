"""Ports that are free here, as other programs of this host see them."""

from __future__ import annotations

import socket
from typing import Iterator

import pytest

from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.core.rollcall.ports import any_free, check_agreed, is_free, offered


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


def test_a_port_without_a_listener_is_free() -> None:
    assert is_free(any_free())


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


def test_any_free_port_is_none_that_connections_are_given() -> None:
    assert all(20000 <= any_free() < 32000 for _ in range(50))


def test_a_wanted_port_is_offered_where_it_is_free(taken: int) -> None:
    wanted = any_free()
    free, other, any_ = offered((wanted, taken, 0))
    assert free == wanted
    assert other not in (taken, 0)
    assert len({free, other, any_}) == 3
    assert all(map(is_free, (other, any_)))


def test_each_wish_gets_a_port_of_its_own() -> None:
    wanted = any_free()
    ports = offered((wanted, wanted, 0, wanted, 0))
    assert ports[0] == wanted
    assert len(set(ports)) == 5


def test_the_port_after_the_last_is_none() -> None:
    assert not is_free(65536)
    (port,) = offered((65536,))
    assert 20000 <= port < 32000


def test_a_wish_that_allows_no_other_port(taken: int) -> None:
    free = any_free()
    assert offered((free,), "--tf-port") == (free,)
    with pytest.raises(LauncherError, match=f"--tf-port {taken}: port {taken} is taken here"):
        offered((free, taken), f"--tf-port {taken}")
    with pytest.raises(LauncherError, match="--rollcall names: other hosts can't learn"):
        offered((0,), "--rollcall names")


def test_nothing_wanted_is_nothing_offered() -> None:
    assert offered(()) == ()


def test_ports_that_all_hosts_go_by_are_free_on_the_leader(taken: int) -> None:
    free = any_free()
    check_agreed("--rollcall off", None, (free,), True)
    check_agreed("--rollcall off", taken, (taken,), False)
    with pytest.raises(LauncherError, match=f"--rollcall off: port {taken} is taken on this host, .* --master-port"):
        check_agreed("--rollcall off", taken, (free, taken), True)


@pytest.mark.parametrize("leads", [True, False])
def test_any_free_port_is_none_that_all_hosts_could_go_by(leads: bool) -> None:
    with pytest.raises(UsageError, match="--master-port 0 with --rollcall names"):
        check_agreed("--rollcall names", 0, (), leads)
