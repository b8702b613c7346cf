"""The tasks of a parameter-server job: which role runs on which host, as what kind of process. It does no I/O.

Two layouts, for the two generations of TensorFlow programs. SageMaker's (TensorFlow 1: the program runs as ``master``
and ``worker``) has the first host as master, the others as workers and a ps beside each. The counted one (TensorFlow
2's ``ParameterServerStrategy``) has a chief, which runs the program, and as many workers and ps as asked for, which
are servers that it uses. Sources: sagemaker-tensorflow-training (``training.py``), TensorFlow's "Parameter server
training" guide.
"""

from typing import Final, Literal

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.job import platforms
from musterpoint.core.job.model import Job
from musterpoint.core.launch.launcher import Launcher

Runs = Literal["rank", "server", "beside"]
"""The user's program, which counts; a TensorFlow server of ours; the user's program beside the ranks (evaluator)."""
RANK: Final = "rank"
SERVER: Final = "server"
BESIDE: Final = "beside"

TaskRole = Literal["master", "chief", "worker", "ps", "evaluator"]


class Task(NamedTuple):
    """A task of the job's cluster.

    role: its type in TF_CONFIG.
    number: its index there.
    host: where it runs.
    runs: as what kind of process.
    place: its index among the tasks of its host, and among the ports that the host offers.
    """

    role: TaskRole
    number: int
    host: str
    runs: Runs
    place: int = 0

    @property
    def name(self) -> str:
        return f"{self.role} {self.number}"


def tasks_of(job: Job, settings: Settings) -> tuple[Task, ...]:
    """Every task of a parameter-server job, those that run the program first.

    Raises:
        UsageError: there are more hosts than roles.
    """
    counts = roles_of(job, settings)
    tasks = _counted(job.group_hosts, counts) if counts else _sagemaker(job.group_hosts)
    seen: dict[str, int] = {}
    placed = []
    for task in tasks:
        placed.append(task._replace(place=seen.get(task.host, 0)))
        seen[task.host] = seen.get(task.host, 0) + 1
    return tuple(placed)


def roles_of(job: Job, settings: Settings) -> dict[str, int]:
    """How many of each role were asked for, with ``--tf-roles`` or by the job; empty for SageMaker's layout."""
    if settings.tf_roles:
        pairs = (part.partition("=") for part in settings.tf_roles.split(","))
        return {name: int(count) for name, _, count in pairs}
    return dict(job.distribution.roles)


def ranks_on(host: str, job: Job, settings: Settings) -> int:
    """How many of a parameter-server job's ranks ``host`` runs."""
    return sum(task.host == host and task.runs == RANK for task in tasks_of(job, settings))


def _sagemaker(hosts: tuple[str, ...]) -> list[Task]:
    ranks = [
        Task("worker" if number else "master", max(number - 1, 0), host, RANK) for number, host in enumerate(hosts)
    ]
    return [*ranks, *(Task("ps", number, host, SERVER) for number, host in enumerate(hosts))]


def _counted(hosts: tuple[str, ...], counts: dict[str, int]) -> list[Task]:
    """The chief on the first host, workers on one host after another, other tasks where the fewest are."""
    workers, servers = counts.get("worker", len(hosts)), counts.get("ps", 1)
    evaluators = counts.get("evaluator", 0)
    roles = 1 + workers + servers + evaluators
    if roles < len(hosts):
        raise UsageError(
            f"the job has {len(hosts)} hosts for {roles} roles (chief, {workers} worker, {servers} ps, {evaluators} "
            "evaluator): some would have nothing to do; ask for more of a role with --tf-roles, or for fewer hosts"
        )
    first = 1 if len(hosts) > workers else 0
    tasks = [Task("chief", 0, hosts[0], RANK)]
    tasks += [Task("worker", number, hosts[(first + number) % len(hosts)], SERVER) for number in range(workers)]
    others = [Task("ps", number, "", SERVER) for number in range(servers)]
    others += [Task("evaluator", number, "", BESIDE) for number in range(evaluators)]
    for other in others:
        host = min(hosts, key=lambda host: sum(task.host == host for task in tasks))
        tasks.append(other._replace(host=host))
    return tasks


def default_port(launcher: Launcher, job: Job) -> int:
    """The first port of a TensorFlow launcher's servers where ``--tf-port`` doesn't say."""
    return launcher.first_port or platforms.load(job.platform).tensorflow_port


def first_port(launcher: Launcher, job: Job, settings: Settings) -> int:
    """The first port that its servers would have; 0: any free one."""
    return default_port(launcher, job) if settings.tf_port is None else settings.tf_port


def fixed_ports(settings: Settings) -> str:
    """The option by which a TensorFlow launcher's servers get only the preferred ports."""
    return f"--tf-port {settings.tf_port}" if settings.tf_port else ""
