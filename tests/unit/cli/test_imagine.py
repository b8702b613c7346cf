"""A roster without the network."""

from __future__ import annotations

from musterpoint.cli.planning import imagine_roster
from musterpoint.job.model import EntryPoint, Job
from musterpoint.settings import Settings

HOSTS = ("algo-1", "algo-2", "algo-3")


def test_known_addresses_names_and_groups() -> None:
    job = Job("sagemaker", "j", HOSTS, "algo-3", ("algo-2", "algo-3"), EntryPoint("t.py"))
    roster = imagine_roster(job, Settings(master_port=29400), lambda host: 4, {"algo-2": "10.0.0.2"}, "1.0")
    assert [seat.address for seat in roster.seats] == ["algo-1", "10.0.0.2", "algo-3"]
    assert [seat.slots for seat in roster.seats] == [0, 4, 4]
    assert (roster.master_address, roster.master_port) == ("10.0.0.2", 29400)
    assert (roster.node_rank, roster.first_rank, roster.world_size) == (1, 4, 8)


def test_one_host_is_on_the_loopback() -> None:
    job = Job("plain", "j", ("laptop",), "laptop", ("laptop",), EntryPoint("t.py"))
    roster = imagine_roster(job, Settings(), lambda host: 1, {"laptop": "192.0.2.7"})
    assert roster.master_address == roster.seat.address == "127.0.0.1"
    assert roster.master_port == 7777
