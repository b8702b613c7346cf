"""Where each rank stands: the tables of AWS's documentation, and what holds for every world."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from .conftest import Modules

pytestmark = pytest.mark.torch


# world of 8, two of each: (replica, part, tensor) of ranks 0 to 7, then the groups of each kind
DOCUMENTED = {
    "DPT": ("000 001 010 011 100 101 110 111", "01 23 45 67", "02 13 46 57", "04 15 26 37", "0123 4567", "0145 2367"),
    "DTP": ("000 010 001 011 100 110 101 111", "02 13 46 57", "01 23 45 67", "04 15 26 37", "0123 4567", "0246 1357"),
    "PDT": ("000 001 100 101 010 011 110 111", "01 23 45 67", "04 15 26 37", "02 13 46 57", "0145 2367", "0123 4567"),
    "PTD": ("000 100 001 101 010 110 011 111", "02 13 46 57", "04 15 26 37", "01 23 45 67", "0246 1357", "0123 4567"),
    "TDP": ("000 010 100 110 001 011 101 111", "04 15 26 37", "01 23 45 67", "02 13 46 57", "0145 2367", "0246 1357"),
    "TPD": ("000 100 010 110 001 101 011 111", "04 15 26 37", "02 13 46 57", "01 23 45 67", "0246 1357", "0145 2367"),
}
KINDS = ("tp", "pp", "rdp", "mp", "dp")


@pytest.fixture(scope="module")
def topology(modelparallel: Modules) -> Any:
    return modelparallel("torch.topology")


def listed(groups: Any) -> str:
    return " ".join("".join(map(str, ranks)) for ranks in groups)


@pytest.mark.parametrize("strategy", [*DOCUMENTED, "cluster", "spread", "Cluster", "tpd"])
def test_the_documented_tables(topology: Any, strategy: str) -> None:
    places, *groups = DOCUMENTED[{"cluster": "DPT", "spread": "TPD"}.get(strategy.lower(), strategy.upper())]
    made = topology.Topology(8, 2, 2, strategy)
    assert listed(made.places) == places
    for kind, expected in zip(KINDS, groups):
        assert listed(made.groups(kind)) == expected


def test_documented_examples_without_tensor_parallelism(topology: Any) -> None:
    spread, cluster = topology.Topology(8, 2, 1, "spread"), topology.Topology(8, 2, 1, "cluster")
    assert (listed(spread.groups("mp")), listed(spread.groups("dp"))) == ("04 15 26 37", "0123 4567")
    assert spread.group("dp", 6).index(6) == 2
    assert (listed(cluster.groups("mp")), listed(cluster.groups("dp"))) == ("01 23 45 67", "0246 1357")
    book = topology.Topology(16, 2)
    assert (book.group("mp", 0), book.group("dp", 0)) == ((0, 1), tuple(range(0, 16, 2)))


def test_what_holds_for_every_world(topology: Any) -> None:
    draw = random.Random(1)
    for _ in range(150):
        pp, tp, rdp = (draw.choice([1, 2, 3, 4]) for _ in range(3))
        strategy = "".join(draw.sample("DPT", 3))
        made = topology.Topology(pp * tp * rdp, pp, tp, strategy)
        ranks = range(made.world)
        assert len(set(made.places)) == made.world
        sizes = {"world": made.world, "mp": pp * tp, "dp": rdp * tp, "pp": pp, "tp": tp, "rdp": rdp}
        for kind, size in sizes.items():
            groups = made.groups(kind)
            assert sorted(itertools.chain(*groups)) == list(ranks)
            assert all(len(group) == size and list(group) == sorted(group) for group in groups)
            assert all(made.group(kind, rank) in groups and rank in made.group(kind, rank) for rank in ranks)
        for rank in ranks:
            place = made.places[rank]
            for kind, own in (("pp", place.pp), ("tp", place.tp), ("rdp", place.rdp)):
                assert made.group(kind, rank).index(rank) == own
            assert set(made.group("mp", rank)) & set(made.group("dp", rank)) == set(made.group("tp", rank))
        fastest = {"D": "rdp", "P": "pp", "T": "tp"}[strategy[-1]]
        assert made.group(fastest, 0) == tuple(range(sizes[fastest]))
        assert made.places[0] == (0, 0, 0)


@pytest.mark.parametrize(("world", "pp", "tp"), [(3, 2, 1), (4, 3, 1), (6, 2, 2), (1, 2, 1)])
def test_degrees_that_do_not_divide_the_world(topology: Any, world: int, pp: int, tp: int) -> None:
    with pytest.raises(
        ValueError, match=f"{pp} times tensor_parallel_degree {tp} is {pp * tp} ranks .* world size {world}:"
    ):
        topology.Topology(world, pp, tp)


@pytest.mark.parametrize("strategy", ["", "DP", "DPP", "DPTX", "clusters"])
def test_another_placement(topology: Any, strategy: str) -> None:
    with pytest.raises(ValueError, match=f"placement_strategy='{strategy}': expected cluster, spread or an order"):
        topology.Topology(8, 2, 2, strategy)
