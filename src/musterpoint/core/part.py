"""A job on this host, and the host's part in it: ready, or kept from starting by one of three reasons."""

from typing import Any, Union

from musterpoint.base.errors import UsageError
from musterpoint.base.failure import Failure
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job
from musterpoint.core.launch.host_plan import PreparedHost
from musterpoint.core.rollcall.roster import Offer, Roster
from musterpoint.core.runtime import Request, Runtime
from musterpoint.core.supervise.watcher import WatchedJob


class JobContext(NamedTuple):
    """A job on this host."""

    request: Request
    """With the variables of the user's program and its Python, once they are settled."""
    options: Settings
    job: Job
    wrong: tuple[UsageError, ...] = ()
    """Errors of this host's request that the others are to be told: it can't run its part."""

    @property
    def installs(self) -> bool:
        """Tells that a program which is here already wants packages."""
        return bool(self.options.requirements) or self.options.installer in ("pip", "uv")

    def with_job(self, job: Job) -> "JobContext":
        """The same with the job as it was learned since."""
        return JobContext(self.request, self.options, job, self.wrong)

    def seen(self, runtime: Runtime, found: Any = ()) -> WatchedJob:
        """The job for watchers, with what the moment has ``found``."""
        say, record, lent = runtime.console.say, runtime.timeline.add, self.request.loan is not None
        tools = runtime.loop, runtime.sidecars, runtime.signals, say, record, runtime.ask
        return WatchedJob(*tools, self.request.environ, self.options, self.job, lent, found)


class Ready(NamedTuple):
    """This host can run its part; ``offer`` is what it says of itself in the roll call."""

    host: PreparedHost
    offer: Offer


class Refused(NamedTuple):
    """This host can't run its part. It meets the others all the same, who would wait for it, and tells them why."""

    failure: Failure


class Stopped(NamedTuple):
    """This host was told to stop, by ``signal``."""

    signal: int


class Excused(NamedTuple):
    """This host could run its part, and waits for another one's reason; ``why``: what that is about."""

    why: str


Part = Union[Ready, Refused, Stopped, Excused]


def met(part: Part, roster: Roster) -> Part:
    """``part`` once the roll call is over: the others may not be ready."""
    return Excused("another host can't run its part") if isinstance(part, Ready) and not roster.is_whole else part
