"""A launch of ours inside a job's program: what the job above lends it, and what it tells that job.

It is an entry point of its own, with a roll call, ranks and watches of its own. The job above lends it the hosts, a
port, a secret, the job's directories and the options for its output and its end; data, uploads and reports are that
job's. :mod:`musterpoint.core.supervise.launches` is the other end.
"""

import json
import os
import signal
import socket
from typing import Any, Callable, Mapping

from musterpoint.base import exit_codes, settings
from musterpoint.base.console import Console
from musterpoint.base.errors import UsageError
from musterpoint.base.failure import Failure, failure_of_error, with_secondary
from musterpoint.base.loop import READ, Loop
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import BY_FIELD, LOCAL, OUTER, PLANNED, SHOW_RANKS, SHOWN, SOCKET_TOKEN, Settings
from musterpoint.base.stop_budget import rank_grace
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.job.model import Job, Paths
from musterpoint.core.launch.identity import IDENTITY
from musterpoint.core.processes.control_socket import address_of
from musterpoint.core.rollcall.roll_call import Seams
from musterpoint.core.rollcall.roster import Offer, Roster
from musterpoint.core.supervise.launches import BEGIN, EVENT, encode_end
from musterpoint.core.supervise.state import Outcome

_OPTIONS = (
    *("slots", "python", "log_ranks", "log_prefix", "stall_timeout", "on_stall", "stop_signal", "stop_exit_code"),
    *("on_failure", "outside", "rollcall_timeout", "silence_timeout"),
    *("platform", "nnodes", "node_rank", "rollcall_leader", "hosts_file", "group", "job_name"),
)
"""The fields of options that hold for a launch, too, unless it has its own."""
_OF_THE_JOB = ("max_restarts", "channel", "checkpoints", "upload")
"""Options that only the job above can follow: it starts ranks again, and has the job's data."""
_STOP_NOTICE = 0.2
"""Seconds in which hosts that are here hear of a stop before the roll call is over."""
_TOLD = ("rank", "launcher-", "service-", "stub-", "stalled")
"""How the events begin that the job above has in its timeline."""


class Loan(NamedTuple):
    """A job's loan to a launch in its program.

    ``number``: which launch of its job it is; the same on all hosts. ``hosts`` and ``group``: names in rank order;
    ``me`` is this host. ``addresses``: of the hosts, in their order. ``options``: by field. ``variables``: those of the
    job above that are no user's. ``paths``: the job's directories, by field. ``masked``: secrets to hide.
    """

    number: int
    me: str
    hosts: tuple[str, ...]
    group: tuple[str, ...]
    addresses: tuple[str, ...]
    options: Mapping[str, Any]
    variables: Mapping[str, str]
    paths: Mapping[str, str]
    masked: tuple[str, ...]

    def given(self, environ: Mapping[str, str], given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options of a launch: ``given``, its own, and those that are lent and that its ``environ`` doesn't name.

        Raises:
            UsageError: one of its own is the job's.
        """
        own = settings.from_environ(environ, given)
        for field in _OF_THE_JOB:
            if value := getattr(own, field):
                option = BY_FIELD[field]
                raise UsageError(
                    f"{option.flag} {value}: this launch is part of another musterpoint's job, which does that: set "
                    f"{option.variable} in that job's environment"
                )
        lent = {field: value for field, value in self.options.items() if not environ.get(BY_FIELD[field].variable)}
        if own.stop_grace is not None:  # the job above kills what is left then
            given = {**given, "stop_grace": min(own.stop_grace, self.options["stop_grace"])}
        return {**lent, **given}

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of a launch: without those by which the job above, or its launcher, counts its own ranks."""
        planned = {*IDENTITY, *environ.get(PLANNED, "").split(",")}
        return {**{name: value for name, value in environ.items() if name not in planned}, **self.variables}

    def job(self, job: Job) -> Job:
        """``job`` with the hosts and the directories that are lent."""
        paths = Paths(**{**self.paths, "code": job.paths.code, "failure": "", "success": ""})
        own = job._replace(hosts=self.hosts, group_hosts=self.group, current_host=self.me, unnamed=None, started=None)
        return own._replace(paths=paths)

    def in_roll_call(self, offer: Offer, program: str) -> tuple[Offer, dict[str, tuple[str, ...]], Seams]:
        """This host's offer, the hosts' addresses, and the times in its roll call.

        Launches of other numbers or programs never meet it. At a stop the job above tells the other hosts.
        """
        offer = offer._replace(job=f"{offer.job} (launch {self.number}: {os.path.basename(program)})")
        known: dict[str, tuple[str, ...]] = dict(zip(self.hosts, ((each,) for each in self.addresses), strict=True))
        return offer, known, Seams(Timeouts()._replace(stop_notice=_STOP_NOTICE))


def lend(
    job: Job, options: Settings, environ: Mapping[str, str], roster: Roster, masked: tuple[str, ...],
    number: int, running: tuple[int, ...],
) -> dict[str, Any]:  # fmt: skip
    """A :class:`Loan` for launch ``number`` of ``job``, while those with the pids ``running`` run; or ``refused``, with
    the reason.
    """
    seats = roster.group if roster.seat.role else roster.seats
    several = len(seats) > 1
    if several and running:
        return {
            "refused": f"a launch of this job's program runs already on {roster.me} (process {running[0]}), and a job "
            "of several hosts takes one at a time: start the next one when it has ended, or give each a job of its own"
        }
    lent = {field: value for field in _OPTIONS if (value := getattr(options, field)) != Settings._field_defaults[field]}
    lent["stop_grace"] = rank_grace(rank_grace(job.grace, options.stop_grace), None)
    lent.update(pid1_watch="off", master_port=0)
    if options.log_dir:
        lent["log_dir"] = os.path.join(os.path.abspath(options.log_dir), f"launch-{number}")
    if several:
        leads = roster.leader in (seat.name for seat in seats)
        lent["rollcall_port"] = roster.launch_port if leads else roster.master_port
    if several or options.secret:
        from musterpoint.core.channel.secret import derived

        lent["secret"] = derived(options.secret or roster.session, f"launches of attempt {roster.attempt}")
    names, group = ([seat.name for seat in each] for each in (seats, roster.group))
    variables = {name: environ[name] for name in (LOCAL, SHOW_RANKS, SHOWN) if name in environ}
    addresses, paths = tuple(seat.address for seat in seats), job.paths._asdict()
    loan = Loan(number, roster.me, tuple(names), tuple(group), addresses, lent, variables, paths, masked)
    return loan._asdict()


class Lender:
    """This end of the connection to the job above. None from :meth:`find` where there is none."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._file = sock, sock.makefile("rb")
        self._forget: Callable[[], None] = lambda: None

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> "Lender | None":
        address = environ.get(OUTER, "")
        if not address:
            return None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(address_of(address))
        except OSError:
            sock.close()
            return None  # a variable left over from a job that is gone
        lender = cls(sock)
        lender._send(environ.get(SOCKET_TOKEN, ""))
        return lender

    def borrow(self) -> Loan | None:
        """The loan; None where the job above is ending, or runs as another user.

        Raises:
            UsageError: it lends nothing, and says why.
        """
        answer = self._ask(f"{BEGIN}{os.getpid()}")
        if not answer:
            self.close()
            return None
        lent = json.loads(answer)
        if "refused" in lent:
            raise UsageError(lent["refused"])
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in lent.items()}
        return Loan._make(fields[name] for name in Loan._fields)

    def watch(self, loop: Loop) -> None:
        """From now on this process ends with the job above: its ranks do so with it."""
        loop.watch(self._socket.fileno(), READ, lambda _ready: self._is_gone())
        self._forget = lambda: loop.forget(self._socket.fileno())

    def _is_gone(self) -> None:
        if not self._socket.recv(1, socket.MSG_PEEK):
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(self, event: str, facts: Mapping[str, Any]) -> None:
        """Tells of an event of this launch's processes."""
        if event.startswith(_TOLD):
            self._send(EVENT + json.dumps([event, facts], default=str))

    def ended(self, outcome: Outcome) -> None:
        """Tells how the launch ended. Returns when that was heard: only then may this process end."""
        self._forget()
        failure = outcome.failure
        if failure is not None:
            failure = failure._replace(reason=with_secondary(failure, outcome.secondary, outcome.no_restart))
        self._ask(encode_end(os.getpid(), failure, outcome.warnings))
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _send(self, line: str) -> None:
        try:
            self._socket.sendall(line.encode("utf-8", "surrogateescape") + b"\n")
        except OSError:
            pass  # the job above is gone

    def _ask(self, line: str) -> bytes:
        """Sends a line and returns the answer; empty where the job above is gone."""
        self._send(line)
        try:
            return self._file.readline()
        except OSError:
            return b""


def below(request: Any, runtime_of: Callable[[Any], Any], run: Callable[..., int], end: Callable[..., None]) -> int:
    """Runs a launch in the program of another job of ours with what that lends; returns its exit code.

    ``run`` gets the runtime of a request and a function that tells how the job ended: ``end`` where no job is above.
    """
    lender = Lender.find(request.environ)
    if lender is None:
        return run(runtime_of(request), end)
    try:
        loan = lender.borrow()
        if loan is None:
            Console(str).say("the job above is ending, or runs as another user: it lends nothing, and nothing starts")
            return exit_codes.STOPPED
        given = loan.given(request.environ, request.given)
    except UsageError as error:
        Console(str).say(str(error))
        lender.ended(Outcome(error.code, failure_of_error(error, request.environ.get("SM_CURRENT_HOST", ""))))
        return error.code
    runtime = runtime_of(request._replace(environ=loan.environ(request.environ), given=given, loan=loan))
    runtime.timeline.pass_on(lender.tell)
    lender.watch(runtime.loop)
    return run(runtime, lambda _runtime, outcome: lender.ended(outcome))


def report(failure: Failure, environ: Mapping[str, str]) -> bool:
    """Tells the job above why a launch of ours comes to nothing; whether there is such a job."""
    lender = Lender.find(environ)
    if lender is not None:
        lender.ended(Outcome(failure.code, failure))
    return lender is not None
