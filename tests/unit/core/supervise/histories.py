"""Random histories of a job's hosts; they shrink to few hosts, few faults and whole seconds."""

from __future__ import annotations

from hypothesis import strategies as st

from .simulated_hosts import (
    Breaks,
    Consults,
    Dies,
    Fails,
    Freezes,
    History,
    Keeps,
    Part,
    Quiets,
    Rank,
    Snaps,
    Stops,
    Unplugs,
)

SOON = st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 11.0])
LATENCY = st.sampled_from([0.01, 0.0, 0.1, 0.5])
MOMENT = st.builds(lambda whole, part: whole + part, st.integers(1, 70), st.sampled_from([0.0, 0.005, 0.02, 0.15, 0.5]))
RANK = st.builds(
    Rank,
    after=st.sampled_from([60.0, 10.0, 10.01, 30.0, 200.0]),
    stops=st.sampled_from([0.1, 0.0, 3.0, 20.0, None]),
    echoes=st.sampled_from([None, 0.01, 0.5, 3.0, 40.0]),
)
INFRA = st.sampled_from(["infra", "peer"])
ENDS = st.sampled_from(["job", "with", "never"])
LOOK = st.sampled_from([0.5, 0.0, 1.5, 4.0])
LENGTH = st.sampled_from([1.0, 4.0, 7.0, 12.0, 20.0, 40.0, 60.0, 90.0, 200.0])


@st.composite
def restarting(draw: st.DrawFn) -> History:
    """Histories of jobs that may be started again, which one failure at least asks for."""
    history = draw(histories())
    host = st.integers(0, len(history.hosts) - 1)
    infra = st.builds(Fails, host, st.just(0), MOMENT, st.integers(1, 3), st.sampled_from(["infra", "peer"]))
    early = draw(infra)
    return history._replace(
        faults=(early._replace(at=early.at % 20), *draw(st.lists(infra, max_size=2)), *history.faults),
        finish=False,
        restarts=draw(st.sampled_from([2, 1, 3])),
        on=draw(st.sampled_from(["infra", "user"])),
        rejoin=draw(st.sampled_from([0.0, 5.0, 20.0])),
        saves=draw(st.sampled_from([None, 0, 1, 9])),
        drains=tuple(draw(st.sampled_from([0.0, 0.01, 1.0, 5.0])) for _ in history.hosts),
    )


@st.composite
def silent(draw: st.DrawFn) -> History:
    """Histories of jobs whose ranks print nothing from some moment on, over a network without faults."""
    hosts = range(draw(st.integers(2, 4)))
    quiet = [Quiets(host, draw(MOMENT), draw(LOOK)) for host in hosts]
    failing = st.sampled_from([Fails(host, 0, 150.0) for host in hosts])
    return History(
        tuple((Rank(after=draw(st.sampled_from([200.0, 200.0, 90.0]))),) for _ in hosts),
        (*quiet, *draw(st.lists(failing, max_size=1))),
        latencies=tuple(draw(LATENCY) for _ in hosts),
        starts=tuple(draw(SOON) for _ in hosts),
        finish=draw(st.booleans()),
    )


@st.composite
def histories(draw: st.DrawFn, most_faults: int = 4) -> History:
    count = draw(st.integers(2, 4))
    each = st.lists(RANK, min_size=1, max_size=2).map(tuple)
    hosts = tuple(draw(each) for _ in range(count))
    host, worker = st.integers(0, count - 1), st.integers(1, count - 1)
    fault = st.one_of(
        st.builds(
            Fails, host, st.just(0), MOMENT, st.integers(1, 3), st.sampled_from(["user", "oom", "infra", "peer"]),
            st.booleans(),
        ),
        st.builds(Stops, host, MOMENT, st.sampled_from([15, 2])),
        st.builds(Breaks, host, MOMENT),
        st.builds(Snaps, worker, MOMENT),
        st.builds(Dies, host, MOMENT, st.sampled_from(["refuses", "vanishes", "dark"])),
        st.builds(Freezes, host, MOMENT, LENGTH),
        st.builds(Quiets, host, MOMENT, LOOK),
        st.builds(Consults, host, MOMENT, st.sampled_from(["x", "y"]), st.sampled_from([30.0, 0.0, 400.0])),
        st.builds(Keeps, host, MOMENT, LENGTH),
        st.builds(Unplugs, worker, MOMENT, LENGTH, st.sampled_from([0.0, 1.0, 10.0])),
    )  # fmt: skip
    outside = draw(st.booleans()) and count > 2
    return History(
        hosts,
        tuple(draw(st.lists(fault, max_size=most_faults))),
        latencies=tuple(draw(LATENCY) for _ in hosts),
        starts=tuple(draw(SOON) for _ in hosts),
        leaves=tuple(draw(st.sampled_from([0.1, 0.0, 5.0])) for _ in hosts),
        finish=draw(st.booleans()),
        tolerates=draw(st.booleans()),
        ahead=tuple(draw(st.sampled_from([0.0, 0.02, -0.5, 3600.0])) for _ in hosts),
        outside=outside,
        outside_stops=outside and draw(st.booleans()),
    )


@st.composite
def several_roles(draw: st.DrawFn, most_faults: int = 3) -> History:
    """Histories of jobs with roles, of which services usually run until they are told to end."""
    count = draw(st.integers(1, 4))
    names = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count).map(sorted))
    parts = []
    for number in sorted({*names}):
        on = tuple(host for host in range(count) if names[host] == number)
        parts.append(Part(f"role-{number}", on, draw(ENDS)))
    for number in range(draw(st.integers(0, 2))):
        beside = draw(st.sampled_from(parts[: len({*names})]))
        ends = draw(ENDS) if beside.ends == "job" else draw(st.sampled_from(["with", "never"]))
        parts.append(Part(f"beside-{number}", beside.on, ends, beside=True, rank=draw(_ranks_of(ends))))
    if all(part.ends != "job" for part in parts):
        parts[0] = parts[0]._replace(ends="job")
    order = draw(st.permutations(range(len(parts))))
    for place, at in enumerate(order):
        earlier = [parts[one].name for one in order[:place]]
        after = draw(st.sets(st.sampled_from(earlier), max_size=2)) if earlier else set()
        parts[at] = parts[at]._replace(
            after=tuple(sorted(after)), ready=draw(st.sampled_from([0.5, 0.0, 3.0, 30.0, 99.0, None]))
        )
    hosts = []
    for host in range(count):
        own = next(part for part in parts if host in part.on)
        hosts.append(tuple(draw(_ranks_of(own.ends)) for _ in range(draw(st.integers(1, 2)))))
    plain = draw(histories(most_faults))
    faults = tuple(
        fault._replace(rank=draw(st.sampled_from(programs)))
        if isinstance(fault, Fails) and (programs := [0, *(p.name for p in parts if p.beside and fault.host in p.on)])
        else fault
        for fault in plain.faults
        if fault.host < count and (count > 1 or not isinstance(fault, (Snaps, Unplugs)))
    )
    each = {name: (getattr(plain, name) * 2)[:count] for name in ("latencies", "starts", "leaves", "ahead")}
    return History(tuple(hosts), faults, finish=plain.finish and draw(st.booleans()), roles=tuple(parts), **each)


def _ranks_of(ends: str) -> st.SearchStrategy[Rank]:
    lasts = [2000.0, 2000.0, 2000.0, 60.0, 10.0] if ends == "with" else [60.0, 10.0, 10.01, 30.0, 200.0]
    return st.builds(
        Rank,
        after=st.sampled_from(lasts),
        stops=st.sampled_from([0.1, 0.0, 3.0, 20.0, None]),
        echoes=st.sampled_from([None, None, 0.01, 3.0, 40.0]),
        told=st.sampled_from([0, 1]),
    )


@st.composite
def restarting_roles(draw: st.DrawFn) -> History:
    """The same of jobs that may be started again."""
    history = draw(several_roles().filter(lambda history: len(history.hosts) > 1))
    early = draw(st.builds(Fails, st.integers(0, len(history.hosts) - 1), st.just(0), MOMENT, st.just(1), INFRA))
    return history._replace(
        faults=(early._replace(at=early.at % 20), *history.faults),
        finish=False,
        restarts=draw(st.sampled_from([2, 1])),
        on=draw(st.sampled_from(["infra", "user"])),
        drains=tuple(draw(st.sampled_from([0.0, 0.01, 1.0, 5.0])) for _ in history.hosts),
    )
