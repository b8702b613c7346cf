"""What a launcher needs to know of the hosts where the platform doesn't name them."""

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job
from musterpoint.core.launch.launcher import Launcher


def check_unnamed(job: Job, options: Settings, launcher: Launcher) -> None:
    """Raises a UsageError for what can't be had where the platform doesn't name the hosts."""
    unnamed = job.unnamed
    if unnamed is None:
        return
    if error := unnamed.misplaced:
        raise error
    rank = unnamed.sources.node_rank
    if unnamed.node_rank is None and launcher.needs_place:
        raise UsageError(
            f"launcher {launcher.name}: a host's role follows from its place, which no host knows before the roll "
            f"call: give every host its own {rank}"
        )
    if options.rollcall_check == "strict" and not options.secret:
        raise UsageError(
            "--rollcall-check strict: the platform names no hosts, so there are no addresses to compare callers with: "
            "set MUSTER_SECRET, the same on all hosts, which proves more"
        )
