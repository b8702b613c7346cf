"""How `muster local --platform gang` plays it: each host runs `muster launch` with the platform's variables."""

from musterpoint.local.platforms import commands
from musterpoint.local.platforms.local_platform import LocalPlatform, PlayedHost


def environment(host: PlayedHost) -> dict[str, str]:
    """What the platform sets; MUSTER_PLATFORM, since a platform of another package is used only by its name."""
    own = {"GANG_HOSTS": ",".join(host.job.hosts), "GANG_SELF": host.name, "GANG_JOB": host.job.name}
    return {**own, "MUSTER_PLATFORM": "gang", "SAGEMAKER_BASE_DIR": host.tree}


PLAYED = LocalPlatform(
    host_names=lambda number, _naming: tuple(f"gang{place}" for place in range(1, number + 1)),
    read_distribution=commands.no_distribution,
    check=commands.check_job,
    prepare=commands.prepare,
    environment=environment,
    processes=commands.launched,
)
