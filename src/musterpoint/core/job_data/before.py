"""Before the ranks: channels are brought, and the newest whole checkpoint; no host starts before all have theirs."""

import os
from functools import partial
from typing import Callable, Mapping, get_args

from musterpoint.base.errors import FetchError, MusterError
from musterpoint.core.channel.peers import JobFailed, Peers, StopAll
from musterpoint.core.channel.topics import data_points
from musterpoint.core.channel.topics.data_points import About, DataHere, DataThere
from musterpoint.core.data.mover_process import Access, NotMoved, Say
from musterpoint.core.data.moves import Target, bring, restore
from musterpoint.core.job_data.data_plan import DataPlan, plan_data, with_channels
from musterpoint.core.part import Excused, JobContext, Part, Ready, Refused, Stopped
from musterpoint.core.processes.beside import run
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.runtime import Runtime
from musterpoint.core.supervise.watchers.kept_checkpoints import ToKeep
from musterpoint.core.supervise.watchers.sent_results import ToSend

POINTS: tuple[About, ...] = get_args(About)
"""Where hosts wait for each other before an attempt, in this order."""
MARK = ".muster-first-host"
"""A file by which the other hosts see whether their checkpoints' directory is the first one's."""
FOR_EVER = 1e9
"""Seconds: a host may download for days."""


def bring_data(
    runtime: Runtime, context: JobContext, part: Part, roster: Roster, peers: Peers
) -> tuple[JobContext, Part, Callable[[Part, int], Part]]:
    """The job with its channels; ``part``, or what keeps it from starting; and what gives that before another attempt,
    by its number. What keeps and sends the data beside and after the ranks are watchers.
    """
    if not isinstance(part, Ready):
        return context, part, lambda part, _attempt: part
    job = context.job
    try:
        plan = plan_data(job, context.options, os.getcwd())
    except MusterError as error:
        return context, Refused(runtime.failure_of(error)), lambda part, _attempt: part
    access = Access(context.request.environ, (part.host.workspace.interpreter,), job.region)
    claims = job.current_host if job.current_host == job.first_host else ""
    bringing = Bringing(runtime, peers, plan, access, roster.session, claims)
    brought = bringing.first(part, roster.attempt)
    if isinstance(brought, Ready):
        runtime.watchers.open("brought", context.seen(runtime, bringing.kept_and_sent(job.trains)))
    return context.with_job(with_channels(job, plan)), brought, bringing.again


class _Interrupted(Exception):
    """A stop, or the job's end on another host, comes first."""


class _ElsewhereFailed(Exception):
    """Another host can't have its data."""


class Bringing:
    """Brings a job's data in the loop, so that the channel and signals are heard meanwhile.

    Every host begins an attempt with one and the same checkpoint: the files that are here, where all hosts have been
    here in the attempt before; else the manifest that they agree on. ``session`` is the job's, the same on all hosts;
    ``claims``: this host's name where it leads the job, and so claims the place for this start; else empty.
    """

    def __init__(
        self, runtime: Runtime, peers: Peers, plan: DataPlan, access: Access, session: str, claims: str
    ) -> None:
        self._runtime, self._peers, self._plan, self._access = runtime, peers, plan, access
        self._session, self._claims = session, claims
        self._attempt, self._reached = 0, POINTS[0]
        self._stop = 0
        self.shares_checkpoints = False
        self.owner = 0
        """The number of this start of the job at the place of its checkpoints."""

    def first(self, part: Ready, attempt: int) -> Part:
        """``part``, or what keeps it from starting. ``attempt``: the first one in which this host is."""
        return self._run(part, attempt, self._first)

    def again(self, part: Part, attempt: int) -> Part:
        """The same before another attempt: it begins with the files that are here, unless a host is new in it."""
        watchers = self._runtime.watchers.all

        def ask() -> None:
            if self._ask_for_new_hosts(is_new=False):
                for watcher in watchers:
                    watcher.forget()
                self._restore_one()

        if not isinstance(part, Ready):
            return part
        for watcher in watchers:
            watcher.again(attempt)
        return self._run(part, attempt, ask)

    def kept_and_sent(self, in_group: bool) -> dict[str, ToKeep | ToSend]:
        """The work of watchers on the job's data, beside the ranks and after."""
        plan, found = self._plan, dict[str, ToKeep | ToSend]()
        if plan.target is not None and in_group:
            shared, target = self.shares_checkpoints, plan.target._replace(owner=self.owner)
            if shared:
                self._runtime.console.say(f"{plan.directory} is the first host's, too, which keeps its checkpoints")
            found["checkpoints"] = ToKeep(self._peers, target, plan.directory, plan.share, self._access, shared)
        if plan.upload is not None:
            found["results"] = ToSend(*plan.upload, self._access)
        return found

    def _run(self, part: Ready, attempt: int, act: Callable[[], None]) -> Part:
        runtime, self._attempt, self._reached = self._runtime, attempt, POINTS[0]
        runtime.signals.route_to(self._on_signal)
        try:
            act()
        except (_Interrupted, _ElsewhereFailed):
            return Stopped(self._stop) if self._stop else Excused("the job's data isn't on another host")
        except MusterError as error:
            failure = runtime.failure_of(error)
            self._say_failed()
            return Refused(failure)
        return part

    def _on_signal(self, signo: int) -> None:
        if signo in STOPPING:
            self._stop = signo
        self._runtime.signals.keep(signo)

    def _first(self) -> None:
        plan, say, add = self._plan, self._runtime.console.say, self._runtime.timeline.add
        for channel, directory in plan.channels:
            found = bring(channel, directory, self._access, plan.share, say, self._program)
            kept = f", {found.kept.sentence} of it were here" if found.kept.files else ""
            say(f"channel {channel.name}: {found.size.sentence} in {directory} after {found.seconds:.1f} s{kept}")
            add("channel-brought", channel=channel.name, files=found.size.files, bytes=found.size.bytes)
        self._find_shared()
        if not self._attempt or self._ask_for_new_hosts(is_new=not self.shares_checkpoints):
            self._restore_one()

    @property
    def _several(self) -> bool:
        return self._plan.target is not None and self._plan.share.hosts > 1

    def _find_shared(self) -> None:
        """Whether the directory is the first host's, as its mark there says."""
        if self._several and self._plan.share.place:
            self.shares_checkpoints = _read(os.path.join(self._plan.directory, MARK)) == self._session

    def _ask_for_new_hosts(self, is_new: bool) -> bool:
        """Whether a host is new in this attempt that has not the others' files; all have their channels then."""
        if self._plan.target is None and not self._plan.channels:
            return False
        return self._consult("new", is_new).is_new and self._plan.target is not None

    def _restore_one(self) -> None:
        """Brings the newest checkpoint; where another host has found a newer one meanwhile, that one. In an attempt
        that isn't the first, no checkpoint at all is one that all begin with, too.
        """
        plan, number = self._plan, None
        if plan.target is not None:
            number = self._restore(plan.target, None)
        if self._several and not plan.share.place:
            _write(os.path.join(plan.directory, MARK), self._session)
        said = self._consult("there", number=number)
        self._find_shared()
        if plan.target is None or said.newest is None:
            return
        if said.newest != number or (self._attempt and not said.newest):
            try:
                self._restore(plan.target, said.newest)
            except NotMoved as error:
                raise FetchError(f"{error} (host {said.host} says that it has it)") if error.missing else error
        if said.oldest != said.newest or self._attempt:
            self._consult("agreed")

    def _restore(self, target: Target, number: int | None) -> int:
        plan, say, add = self._plan, self._runtime.console.say, self._runtime.timeline.add
        share = plan.share
        try:
            os.makedirs(plan.directory, exist_ok=True)
        except OSError as error:
            raise FetchError(
                f"the directory of the checkpoints can't be made: {plan.directory}: {error.strerror}"
            ) from None
        claims = "" if self.owner else self._claims
        found = restore(target, plan.directory, self._access, share, plan.which, number, claims, say, self._program)
        self.owner = self.owner or found.owner
        self._tell(found.number, found.sentence, found.moved)
        add("checkpoint-restored", number=found.number, bytes=found.bytes, seconds=found.seconds)
        return found.number

    def _tell(self, number: int, sentence: str, moved: int) -> None:
        say, plan = self._runtime.console.say, self._plan
        assert plan.target is not None
        if not number:
            say(f"{plan.target.uri} has no checkpoint yet: the program begins with what is in {plan.directory}")
            return
        aside = f"; {moved:,} files that are no part of it were moved out of the way" if moved else ""
        say(f"checkpoint {number} of {plan.target.uri}: {sentence} in {plan.directory}{aside}")

    def _program(self, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        """A program in the loop; a :data:`musterpoint.core.data.mover_process.Run`."""
        return run(self._runtime.loop, self._runtime.sidecars, argv, environ, on_line, self._left)

    def _left(self) -> float | None:
        """No limit to what runs, but for a stop, or the job's end on another host."""
        if self._stop or self._peers.has_events(JobFailed, StopAll):
            raise _Interrupted
        return None

    def _say_failed(self) -> None:
        """The other hosts wait at the next point, whichever it is."""
        for about in POINTS[POINTS.index(self._reached) :]:
            self._report(DataHere(self._attempt, about, True, False, None), lambda _: None)

    def _consult(self, about: About, is_new: bool = False, number: int | None = None) -> DataThere:
        """Reports at a point of this attempt; returns the leader's word once all hosts have come to it."""
        answers: list[DataThere | None] = []
        self._reached = POINTS[POINTS.index(about) + 1]
        self._report(DataHere(self._attempt, about, False, is_new, number), answers.append)
        while not answers:
            self._runtime.loop.turn(self._left())
        found = answers[0]
        if found is None:
            raise _Interrupted
        if found.has_failed:
            raise _ElsewhereFailed
        self.owner = found.owner
        return found

    def _report(self, report: DataHere, on_answer: Callable[[DataThere | None], None]) -> None:
        decide = partial(data_points.decide, owner=self.owner)
        self._peers.topic(data_points.TOPIC).consult(report, decide, on_answer, FOR_EVER)


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        pass  # then nobody finds it


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(64)
    except (OSError, ValueError):
        return ""
