"""Whether a job that failed is started again on the same hosts, and why not; no I/O. The leader decides for all."""

from __future__ import annotations

from typing import Callable, Collection, Mapping, Union

from musterpoint.base.failure import Failure
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.topics.attempts import Progress, Ready
from musterpoint.core.supervise.retry import RestartOn, failed_before_its_ranks, why_not_again

LONGER = 1.1
"""An attempt that took this many times as long as the one before it took longer; less is chance."""


class RestartRules(NamedTuple):
    """The options: how many restarts there may be, after which failures, and how long a lost host is waited for."""

    most: int
    on: RestartOn = "infra"
    rejoin_timeout: float = 0.0


class EndedAttempt(NamedTuple):
    """An attempt that is over on all hosts.

    ``number``: 0 for the first. ``seconds``: how long it took; ``before``: the one before it, None for the first.
    ``failure``: what it ended with. ``stopped``: whether a stop was asked for since.
    """

    number: int
    seconds: float
    before: float | None
    failure: Failure
    stopped: bool = False


class Restart(NamedTuple):
    """Begin the next attempt."""


class Wait(NamedTuple):
    """Wait for lost hosts to come back."""

    hosts: tuple[str, ...]


class End(NamedTuple):
    """There is no other attempt, for the reason ``why``. ``stopped``: a stop is what ends the job."""

    why: str
    stopped: bool = False


RestartDecision = Union[Restart, Wait, End]


def decide_restart(
    rules: RestartRules,
    ended: EndedAttempt,
    hosts: Mapping[str, Ready],
    away: Collection[str] = (),
    left: Collection[str] = (),
) -> RestartDecision:
    """What follows when all ``hosts`` are ready. ``away``: those that are lost; ``left``: those that said goodbye."""
    if why := why_not_again(ended.failure, rules.on):
        return End(why)
    if failed_before_its_ranks(ended.failure):
        return End("its ranks had not been started, so there is nothing to start again on the same hosts")
    if ended.number >= rules.most:
        return End(f"--max-restarts {rules.most} allows no more")
    for check in _CHECKS:
        if why := check(ended, hosts):
            return End(why)
    if ended.stopped:
        return End("the job was told to stop", stopped=True)
    if left:
        return End(f"{_list(left)} has left the job" if len(left) == 1 else f"{_list(left)} have left the job")
    if away:
        return Wait(tuple(sorted(away)))
    return Restart()


def _stuck(_ended: EndedAttempt, hosts: Mapping[str, Ready]) -> str:
    stuck = {name: ready.left for name, ready in hosts.items() if ready.left}
    if not stuck:
        return ""
    name, count = next(iter(stuck.items()))
    where = f" on {name}" if name else ""
    return f"{count} process{'es' if count > 1 else ''} of it{where} can't be killed, and may hold devices and ports"


def _no_progress(ended: EndedAttempt, hosts: Mapping[str, Ready]) -> str:
    """Nothing new where checkpoints go, and no longer than the attempt before: it would end so for ever."""
    if ended.before is None or ended.seconds > ended.before * LONGER or progress_of(hosts) != "none":
        return ""
    return (
        f"it got no further than the attempt before: {ended.seconds:.0f} s after {ended.before:.0f} s, and nothing new "
        "in the checkpoint directory of any host"
    )


_CHECKS: tuple[Callable[[EndedAttempt, Mapping[str, Ready]], str], ...] = (_stuck, _no_progress)


def progress_of(hosts: Mapping[str, Ready]) -> Progress:
    """Whether the attempt made progress on any host; unknown where no host has a checkpoint directory."""
    found = {ready.progress for ready in hosts.values()}
    return "made" if "made" in found else "none" if "none" in found else "unknown"


def _list(names: Collection[str]) -> str:
    first, *others = sorted(names)
    return f"{first} and {len(others)} more" if len(others) > 1 else " and ".join((first, *others))


def attempts_sentence(made: int, why: str) -> str:
    """The end of the failure reason: how many attempts were made; empty where the first was the only one."""
    return "" if made < 2 else f"in attempt {made}, the last: {why}" if why else f"in attempt {made}"
