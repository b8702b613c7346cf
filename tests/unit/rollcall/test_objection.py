"""Hellos against what the leader says to them."""

from __future__ import annotations

import pytest

from musterpoint.rollcall.hello import Hello, validate
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
    said = validate(HELLO._replace(**changes), "algo-1", OFFER, others, grouped, secret=False)
    assert (said.reason if said else "").startswith(words) and bool(said) == bool(words)


def test_a_secret_that_only_the_leader_has() -> None:
    said = validate(HELLO, "algo-1", OFFER, frozenset({"algo-2"}), frozenset(), secret=True)
    assert said is not None
    assert said.reason == "algo-1 has a secret and algo-2 has none (--secret, MUSTER_SECRET)"


@pytest.mark.parametrize("evil", ["\x1b[2J", "a\nmusterpoint: all is well", "\u202e", "x" * 300])
@pytest.mark.parametrize(
    "changes", [{"host": "algo-9"}, {"protocol": 7}, {"nonce": "n"}, {"launcher": ""}, {}], ids=repr
)
def test_nobody_hears_or_reads_the_callers_own_words(changes: dict[str, object], evil: str) -> None:
    offer = OFFER._replace(**({"launcher": evil} if "launcher" in changes else {"job": evil}))
    hello = HELLO._replace(offer=offer, **{key: value for key, value in changes.items() if key != "launcher"})
    said = validate(hello, "algo-1", OFFER, frozenset({"algo-2"}), frozenset({"algo-2"}), secret=False)
    assert said is not None
    assert evil not in said.answer + said.claim
    assert "job" not in said.answer.replace("this job", "").replace("the job", "")
    assert said.reason.isprintable()
    assert len(said.reason) < 500
