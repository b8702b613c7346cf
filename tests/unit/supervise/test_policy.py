"""Event histories against the decisions they must lead to."""

from __future__ import annotations

import pytest

from musterpoint import peers
from musterpoint.peers import Failure
from musterpoint.supervise import events as ev
from musterpoint.supervise.policy import FAILURE_GRACE, RANKS_ENDED, Rules, State, code_of, decide, grace

HERE = Rules(host="algo-1", grace=105.0)
FINISH = HERE._replace(on_failure="finish")
OUTSIDE = HERE._replace(outside=True, outside_stops=True)
SCRIPT = HERE._replace(tolerates_lost_peers=True)

R0, R1 = (0, 0), (0, 1)
OPEN1 = ev.SessionOpened(0, (R0,))
OPEN2 = ev.SessionOpened(0, (R0, R1))
TORCHRUN2 = ev.SessionOpened(0, (R0, R1), foreign=True)
BOOM = Failure("algo-1", 7, "user", "user", "ValueError: boom", rank=0, local_rank=0)
THEIRS = Failure("algo-2", 3, "user", "user", "KeyError: 'x'", rank=2, local_rank=0)
LAUNCHER = Failure("algo-1", 72, "muster", "infra", "muster: torchrun ended")


def ended(key: ev.Key, failure: Failure | None = None) -> ev.RankEnded:
    return ev.RankEnded(key, failure)


def play(history: list[ev.Event], rules: Rules = HERE) -> tuple[State, list[ev.Action]]:
    """The state after ``history`` and the actions of its last event."""
    state, actions = State(), []
    for event in history:
        state, actions = decide(state, event, rules)
    return state, actions


def names(actions: list[ev.Action]) -> list[str]:
    return [type(action).__name__ for action in actions if not isinstance(action, ev.Say)]


# history, rules, phase after it, what the last event leads to
HISTORIES: dict[str, tuple[list[ev.Event], Rules, str, list[str]]] = {
    "one of two ranks ends": ([OPEN2, ended(R0)], HERE, "running", []),
    "the last rank ends": ([OPEN2, ended(R0), ended(R1)], HERE, "waiting", ["TellArrived", "TellDone"]),
    "all hosts done": ([OPEN1, ended(R0), peers.AllDone()], HERE, "over", ["Finish"]),
    "all hosts done, stubs held": (
        [TORCHRUN2, ended(R0), ended(R1), peers.AllDone()], HERE, "leaving", ["Release", "StartTimer"]),
    "the launcher leaves after its release": (
        [TORCHRUN2, ended(R0), ended(R1), peers.AllDone(), ev.AttendantEnded(0, "torchrun", "launcher", LAUNCHER)],
        HERE, "over", ["Finish"]),
    "the launcher won't leave": (
        [TORCHRUN2, ended(R0), ended(R1), peers.AllDone(), ev.LeaveDue()], HERE, "over", ["Finish"]),
    "a rank fails": ([OPEN2, ended(R0, BOOM)], HERE, "judging", ["StartTimer", "TellFailed"]),
    "the verdict on our failure": (
        [OPEN2, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "the only rank failed": (
        [OPEN1, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, "waiting", ["StartTimer", "TellArrived", "TellDone"]),
    "no verdict comes": ([OPEN2, ended(R0, BOOM), ev.VerdictDue()], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "a late verdict timer": (
        [OPEN2, ended(R0, BOOM), peers.JobFailed(BOOM), ev.VerdictDue()], HERE, "ending", []),
    "another host's failure": ([OPEN2, peers.JobFailed(THEIRS)], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "another host's failure after our end": (
        [OPEN1, ended(R0), peers.JobFailed(THEIRS)], HERE, "waiting", ["StartTimer"]),
    "ranks end after the verdict": (
        [OPEN2, peers.JobFailed(THEIRS), ended(R0), ended(R1)], HERE, "waiting",
        ["StartTimer", "TellArrived", "TellDone"]),
    "a rank outlives its grace": ([OPEN1, peers.JobFailed(THEIRS), ev.KillDue()], HERE, "ending",
                                  ["KillTree", "StartTimer"]),
    "a rank can't even be killed": (
        [OPEN1, peers.JobFailed(THEIRS), ev.KillDue(), ev.LeaveDue()], HERE, "over", ["Finish"]),
    "the farewell takes too long": ([OPEN1, peers.JobFailed(THEIRS), ended(R0), ev.LeaveDue()], HERE, "over",
                                    ["Finish"]),
    "the launcher dies with ranks alive": (
        [TORCHRUN2, ev.AttendantEnded(0, "torchrun", "launcher", LAUNCHER)], HERE, "judging",
        ["StartTimer", "TellFailed"]),
    "a wrong world": ([TORCHRUN2, ev.Broken(LAUNCHER)], HERE, "judging", ["StartTimer", "TellFailed"]),
    "SIGTERM here": ([OPEN2, ev.StopAsked(15)], HERE, "ending", ["TellStopping", "SignalRanks", "StartTimer"]),
    "SIGTERM twice": ([OPEN2, ev.StopAsked(15), ev.StopAsked(15)], HERE, "ending", []),
    "Ctrl-C twice": ([OPEN2, ev.StopAsked(2), ev.StopAsked(2)], HERE, "ending", ["KillTree"]),
    "SIGTERM elsewhere": ([OPEN2, peers.StopAll("algo-2", 15)], HERE, "ending", ["SignalRanks", "StartTimer"]),
    "SIGTERM while a verdict is awaited": ([OPEN2, ended(R0, BOOM), ev.StopAsked(15)], HERE, "judging",
                                          ["TellStopping"]),
    "SIGTERM after our ranks ended": ([OPEN1, ended(R0), ev.StopAsked(15)], HERE, "waiting",
                                      ["TellStopping", "StartTimer"]),
    "a stop, then the ranks end": (
        [OPEN1, ev.StopAsked(15), ended(R0)], HERE, "waiting", ["StartTimer", "TellArrived", "TellDone"]),
    "a failure during a stop is none": ([OPEN2, ev.StopAsked(15), ended(R0, BOOM)], HERE, "ending", []),
    "a verdict during a stop is ignored": ([OPEN2, ev.StopAsked(15), peers.JobFailed(THEIRS)], HERE, "ending", []),
    "finish: others go on": ([OPEN2, ended(R0, BOOM)], FINISH, "running", []),
    "finish: the last one ends": ([OPEN2, ended(R0, BOOM), ended(R1)], FINISH, "judging",
                                  ["StartTimer", "TellFailed"]),
    "finish: another host's failure doesn't end ours": ([OPEN2, peers.JobFailed(THEIRS)], FINISH, "running", []),
    "finish: ours ends after another's failure": (
        [OPEN1, peers.JobFailed(THEIRS), ended(R0)], FINISH, "waiting", ["TellArrived", "TellDone"]),
    "finish: another's failure after ours ended": (
        [OPEN1, ended(R0), peers.JobFailed(THEIRS)], FINISH, "waiting", []),
    "outside: the group is done": ([OPEN1, peers.Arrived(RANKS_ENDED)], OUTSIDE, "ending",
                                   ["SignalRanks", "StartTimer"]),
    "outside: told and ended": (
        [OPEN1, peers.Arrived(RANKS_ENDED), ended(R0)], OUTSIDE, "waiting", ["StartTimer", "TellDone"]),
    "a lost peer": ([OPEN1, peers.PeerLost("algo-2", "killed")], HERE, "judging", ["StartTimer", "TellFailed"]),
    "a lost peer under script": ([OPEN1, peers.PeerLost("algo-2", "killed")], SCRIPT, "running", []),
    "a lost peer after our end": ([OPEN1, ended(R0), peers.PeerLost("algo-2", "killed")], HERE, "waiting",
                                  ["TellFailed"]),
    "a handed-over session ends": (
        [OPEN1, ev.SessionOpened(1, ((1, 0),), True), ended((1, 0))], HERE, "running", ["TellArrived"]),
    "a handed-over session ended everywhere": (
        [OPEN1, ev.SessionOpened(1, ((1, 0),), True), ended((1, 0)), peers.Arrived("session-1-ended")], HERE,
        "running", ["Release"]),
    "a handed-over rank fails": (
        [OPEN1, ev.SessionOpened(1, ((1, 0),), True), ended((1, 0), BOOM), peers.JobFailed(BOOM)], HERE, "ending",
        ["SignalRanks", "StartTimer"]),
    "a handed-over session ends in a stop": (
        [OPEN1, ev.SessionOpened(1, ((1, 0),), True), ev.StopAsked(15), ended((1, 0))], HERE, "ending",
        ["TellArrived", "Release"]),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    history, rules, phase, expected = HISTORIES[name]
    state, actions = play(history, rules)
    assert (state.phase, names(actions)) == (phase, expected)


CODES: dict[str, tuple[list[ev.Event], Rules, int]] = {
    "all well": ([OPEN1, ended(R0), peers.AllDone()], HERE, 0),
    "our failure": ([OPEN1, ended(R0, BOOM), peers.JobFailed(BOOM)], HERE, 7),
    "theirs wins": ([OPEN1, ended(R0, BOOM), peers.JobFailed(THEIRS)], HERE, 3),
    "theirs after our end": ([OPEN1, ended(R0), peers.JobFailed(THEIRS), peers.AllDone()], HERE, 3),
    "stopped": ([OPEN1, ev.StopAsked(15), ended(R0), peers.AllDone()], HERE, 143),
    "stopped, other code": ([OPEN1, ev.StopAsked(15), ended(R0)], HERE._replace(stop_code=0), 0),
    "interrupted": ([OPEN1, ev.StopAsked(2), ended(R0)], HERE, 130),
    "stop during a verdict": ([OPEN1, ended(R0, BOOM), ev.StopAsked(15), peers.JobFailed(BOOM)], HERE, 7),
    "outside, told to end": ([OPEN1, peers.Arrived(RANKS_ENDED), ended(R0), peers.AllDone()], OUTSIDE, 0),
    "a lost host": ([OPEN1, peers.PeerLost("algo-2", "killed"), ev.VerdictDue()], HERE, 76),
}


@pytest.mark.parametrize("name", CODES)
def test_code(name: str) -> None:
    history, rules, code = CODES[name]
    state, _ = play(history, rules)
    assert code_of(state, rules) == code


def test_done_is_said_once() -> None:
    said = 0
    state = State()
    for event in [OPEN1, ended(R0), ev.StopAsked(15), peers.JobFailed(THEIRS), peers.AllDone()]:
        state, actions = decide(state, event, HERE)
        said += names(actions).count("TellDone")
    assert said == 1


def test_a_failure_leaves_less_time_than_a_stop() -> None:
    _, failing = play([OPEN1, peers.JobFailed(THEIRS)])
    _, stopping = play([OPEN1, ev.StopAsked(15)])
    assert [a.seconds for a in failing if isinstance(a, ev.StartTimer)] == [FAILURE_GRACE]
    assert [a.seconds for a in stopping if isinstance(a, ev.StartTimer)] == [105.0]


def test_later_failures_are_counted() -> None:
    late = ended(R1, BOOM._replace(rank=1))
    state, _ = play([OPEN2, ended(R0, BOOM), late, peers.JobFailed(THEIRS, secondary=1)])
    assert state.verdict == THEIRS
    assert state.secondary == 2  # rank 1, and our own first one, which the leader knew of
    state, _ = decide(state, ended((0, 9)), HERE)
    for event in (ended(R1), ended(R0), peers.AllDone(failures=5)):
        state, _ = decide(state, event, HERE)
    assert state.secondary == 4  # what all hosts counted together, less the first


def test_nothing_happens_after_the_end() -> None:
    state, _ = play([OPEN1, ended(R0), peers.AllDone()])
    for event in (ev.StopAsked(15), peers.JobFailed(THEIRS), ev.LeaveDue()):
        assert decide(state, event, HERE) == (state, [])


@pytest.mark.parametrize(
    ("platform", "told", "seconds"),
    [(120.0, None, 105.0), (30.0, None, 25.0), (6.0, None, 5.0), (600.0, None, 585.0), (120.0, 7.0, 7.0), (30.0, 0, 0)],
)  # fmt: skip
def test_a_stop_has_the_platforms_time_less_what_a_report_takes(
    platform: float, told: float | None, seconds: float
) -> None:
    assert grace(platform, told) == seconds
