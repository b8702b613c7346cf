"""Which ports a launcher's framework needs on every host, beside the leader's master port."""

from __future__ import annotations

from musterpoint.job.model import Job
from musterpoint.settings import Launcher, Settings

TENSORFLOW: tuple[Launcher, ...] = ("tensorflow", "parameter-server")


def wanted_ports(launcher: Launcher, modules: frozenset[str], settings: Settings, job: Job) -> tuple[int, ...]:
    """The ports this host should offer in the roll call, best first choice each; 0 stands for any free one.

    Raises:
        UsageError: a parameter-server job has more hosts than roles.
    """
    if launcher in TENSORFLOW:
        first, servers = _servers(launcher, settings, job)
        return tuple(first and first + place for place in range(servers))
    announced = settings.rollcall == "full" or len(job.hosts) == 1
    if launcher == "ranks" and "horovod" in modules and announced:
        return (0,)  # Horovod's rendezvous server, on the leader
    return ()


def agreed_ports(launcher: Launcher, modules: frozenset[str], master_port: int) -> tuple[int, ...]:
    """What the leader's processes listen on where no roll call announces ports; TensorFlow has its own."""
    if launcher in TENSORFLOW:
        return ()
    return (master_port, master_port + 1) if launcher == "ranks" and "horovod" in modules else (master_port,)


def insisted(launcher: Launcher, settings: Settings) -> str:
    """The option by which only the wanted ports will do; empty where any free ones are as good."""
    if launcher not in TENSORFLOW:
        return ""
    if settings.tf_port:
        return f"--tf-port {settings.tf_port}"
    return "" if settings.rollcall == "full" else f"--rollcall {settings.rollcall}"


def _servers(launcher: Launcher, settings: Settings, job: Job) -> tuple[int, int]:
    """The first port, and how many TensorFlow servers this host has."""
    from musterpoint.launch.tensorflow.tasks import BESIDE, default_port, roles_of, tasks_of

    alone = len(job.group_hosts) == 1 and settings.tf_port is None
    first = default_port(launcher, job.platform) if settings.tf_port is None else settings.tf_port
    if launcher == "tensorflow":
        return first, 0 if alone else 1
    if alone and not roles_of(job, settings):
        return 0, 0
    tasks = tasks_of(job, settings)
    own = [task for task in tasks if task.host == job.current_host and task.runs != BESIDE]
    return first, len(own)
