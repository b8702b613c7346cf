"""The attempts of a job that may be started again, on the same hosts, until one ends well or no other may follow."""

from typing import TYPE_CHECKING

from musterpoint.base.errors import MusterError
from musterpoint.core.attempts import Attempt
from musterpoint.core.channel.peers import Peers
from musterpoint.core.prepare import free_ports
from musterpoint.core.rollcall.ports import next_master_port, rollcall_port
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.supervise.checkpoints import fingerprint
from musterpoint.core.supervise.restart_rules import RestartRules
from musterpoint.core.supervise.restarts import Between, Restarts
from musterpoint.core.supervise.state import Outcome

if TYPE_CHECKING:
    from musterpoint.core.job_data.carrier import Carrier


def run_until_over(attempt: Attempt, roster: Roster, peers: Peers, carrier: "Carrier | None") -> Outcome:
    """The outcome of the last attempt. ``carrier`` has the job's data, where it has any."""
    runtime, (_request, options, job) = attempt.runtime, attempt.asked

    def ports() -> tuple[int, ...]:
        try:
            found = free_ports(job, options, attempt.host, runtime.ports) if attempt.host is not None else ()
            return found if runtime.ssh is None else (*found, runtime.ssh.port)
        except MusterError:  # the plan says so
            return roster.seat.ports

    between = Between(
        runtime.loop,
        lambda text: runtime.console.say(text, runtime.masker.mask_user),
        runtime.timeline.add,
        runtime.signals.route_to,
        ports,
        lambda last: next_master_port(options.master_port, last, runtime.ports),
        lambda: fingerprint((job.paths.checkpoints, job.paths.model)),
        options.stop_exit_code,
    )
    rules = RestartRules(options.max_restarts, options.restart_on, options.rejoin_timeout)
    restarts = Restarts(between, peers, roster, rules)
    following: Roster | Outcome = roster
    while isinstance(following, Roster):
        this = attempt
        if following is not roster and carrier is not None:
            may_start, refusal = carrier.again(following.attempt)
            this = attempt if may_start else attempt._replace(host=None, refusal=refusal or attempt.refusal)
        following = restarts.after(*this.run(following, peers))
        if isinstance(following, Roster):
            runtime.ports.keep({following.master_port, *following.seat.ports, rollcall_port(job, options)})
    return following
