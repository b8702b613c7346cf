"""Which checkpoints go: the newest stay, and no file that a manifest names is deleted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from musterpoint.embedded.programs.checkpoint_manifest import Entry, Manifest, Part
from musterpoint.embedded.programs.checkpoint_prune import superseded

JOB = "train"


def manifest(number: int, keys: frozenset[str], job: str = JOB, links: tuple[str, ...] = ()) -> Manifest:
    files = tuple(Entry(f"{number}/{key}", 1, "0" * 64, key, 0, False) for key in sorted(keys))
    linked = tuple(Entry(f"{number}/{name}", 0, "", "", 0, False, "target") for name in links)
    return Manifest(number, job, 1, (Part("step", "", 0, 1, (*files, *linked), (), False, {}, 0),))


MANIFESTS = st.lists(
    st.none() | st.tuples(st.frozensets(st.sampled_from("abcdef"), min_size=1), st.sampled_from((JOB, "other"))),
    max_size=8,
)


@given(MANIFESTS, st.integers(0, 4))
def test_what_stays_is_whole(made: list[tuple[frozenset[str], str] | None], keep: int) -> None:
    numbers = range(len(made), 0, -1)
    manifests = {n: None if each is None else manifest(n, *each) for n, each in zip(numbers, made)}
    gone = superseded(manifests, keep, JOB)
    stay = {n: each for n, each in manifests.items() if n not in gone.manifests}
    assert all(each is None or each.job == JOB for n, each in manifests.items() if n in gone.manifests)
    assert not {entry.key for each in stay.values() if each is not None for entry in each.files} & {*gone.keys}
    readable = [(number, each[0]) for number, each in zip(numbers, made) if each is not None]
    newer = [frozenset[str](), *(keys for _, keys in readable)]
    differ = [number for (number, keys), before in zip(readable, newer) if keys != before]
    assert {*differ[: max(1, keep)]} <= {*stay}
    assert superseded(stay, keep, JOB) == ((), ())


def test_a_checkpoint_that_differs_by_links_counts_with_the_newer_one() -> None:
    same = frozenset("ab")
    manifests = {3: manifest(3, same), 2: manifest(2, same, links=("latest",)), 1: manifest(1, frozenset("c"))}
    assert superseded(manifests, 1, JOB) == ((2, 1), ("c",))
