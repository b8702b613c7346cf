"""Hellos against what the leader says to them."""

from __future__ import annotations

import pytest

from musterpoint.rollcall.hello import Hello
from musterpoint.rollcall.objection import objection_to
from musterpoint.rollcall.roster import Offer

OFFER = Offer("job", "torchrun", 2, "0.1")
HELLO = Hello("algo-2", OFFER, "one")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"stop": 15}, ""),
        ({"protocol": 999}, "algo-2 speaks protocol 999, algo-1 protocol"),
        ({"host": "algo-1"}, "algo-1 is the leader itself: two hosts have this name"),
        ({"host": "algo-9"}, "algo-9 is not one of the 3 hosts of job"),
        ({"nonce": "abc"}, "algo-2 has a secret and algo-1 has none (--secret, MUSTER_SECRET)"),
        ({"offer": OFFER._replace(job="other")}, "algo-2 belongs to job 'other', algo-1 to 'job'"),
        ({"offer": OFFER._replace(launcher="mpi")}, "algo-2 would start the launcher mpi, algo-1 torchrun"),
        ({"offer": OFFER._replace(launcher="")}, ""),
        ({"host": "algo-3", "offer": OFFER._replace(launcher="script")}, ""),
    ],
)
def test_what_is_said(changes: dict[str, object], words: str) -> None:
    others, grouped = frozenset({"algo-2", "algo-3"}), frozenset({"algo-1", "algo-2"})
    said = objection_to(HELLO._replace(**changes), "algo-1", OFFER, others, grouped, secret=False)
    assert said.startswith(words) and bool(said) == bool(words)


def test_a_secret_that_only_the_leader_has() -> None:
    said = objection_to(HELLO, "algo-1", OFFER, frozenset({"algo-2"}), frozenset(), secret=True)
    assert said == "algo-1 has a secret and algo-2 has none (--secret, MUSTER_SECRET)"
