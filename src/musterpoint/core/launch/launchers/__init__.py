"""The launchers: a file for each, with all that differs as one object, ``LAUNCHER``; and a row for each.

A launcher's file is imported when it is asked for, so that a job pays for its own alone. Another name may be another
package's: it is looked up among the entry points ``musterpoint.launchers`` of what is installed beside musterpoint.
"""

from typing import Callable, Iterator, Sequence

from musterpoint.base import plugins
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import BY_FIELD, Settings
from musterpoint.core.job.model import Job
from musterpoint.core.launch import wrappers
from musterpoint.core.launch.launcher import Asked, Launcher


def _script() -> Launcher:
    from musterpoint.core.launch.launchers import script

    return script.LAUNCHER


def _torchrun() -> Launcher:
    from musterpoint.core.launch.launchers import torchrun

    return torchrun.LAUNCHER


def _ranks() -> Launcher:
    from musterpoint.core.launch.launchers import ranks

    return ranks.LAUNCHER


def _mpi() -> Launcher:
    from musterpoint.core.launch.launchers import mpi

    return mpi.LAUNCHER


def _tensorflow() -> Launcher:
    from musterpoint.core.launch.launchers import tensorflow

    return tensorflow.LAUNCHER


def _parameter_server() -> Launcher:
    from musterpoint.core.launch.launchers import parameter_server

    return parameter_server.LAUNCHER


def _deepspeed() -> Launcher:
    from musterpoint.core.launch.launchers import deepspeed

    return deepspeed.LAUNCHER


def _ray() -> Launcher:
    from musterpoint.core.launch.launchers import ray

    return ray.LAUNCHER


def _jax() -> Launcher:
    from musterpoint.core.launch.launchers import jax

    return jax.LAUNCHER


def _accelerate() -> Launcher:
    from musterpoint.core.launch.launchers import accelerate

    return accelerate.LAUNCHER


def _ssh() -> Launcher:
    from musterpoint.core.launch.launchers import ssh

    return ssh.LAUNCHER


class LauncherRow(NamedTuple):
    """A launcher before its file is imported, and its ways to be asked for."""

    load: Callable[[], Launcher]
    kinds: tuple[str, ...] = ()
    """Kinds of distribution; why is in its ``Launcher.asked_by``."""
    option: str = ""
    """An option, by field, that asks for it in jobs without a distribution."""
    programs: tuple[str, ...] = ()
    """Programs (a file's name, or a module) that are its own command lines, which are read."""
    commands: tuple[str, ...] = ()
    """Other commands and modules that start ranks themselves, and in whose place it starts the script; some only with a
    word behind them."""


_SMDISTRIBUTED = ("smdistributed_modelparallel", "smdistributed_dataparallel")

LAUNCHERS: dict[str, LauncherRow] = {
    "script": LauncherRow(_script),
    "torchrun": LauncherRow(
        _torchrun,
        ("torch_distributed", "pytorch_ddp", *_SMDISTRIBUTED),
        commands=(
            *("torchrun", "torch.distributed.run", "torch.distributed.launch"),
            *("ft_launcher", "hyperpodrun", "fabric", "lightning"),
            *("lightning.fabric.cli", "lightning_fabric.cli", "lightning.pytorch.cli"),
        ),
    ),
    "ranks": LauncherRow(
        _ranks, _SMDISTRIBUTED, commands=("horovodrun", "horovod.runner.launch", "srun", "jsrun", "aprun")
    ),
    "mpi": LauncherRow(_mpi, ("mpi", *_SMDISTRIBUTED), commands=("mpirun", "mpiexec", "orterun", "mpiexec.hydra")),
    "tensorflow": LauncherRow(_tensorflow, ("multi_worker_mirrored_strategy",)),
    "parameter-server": LauncherRow(_parameter_server, ("parameter_server",), option="tf_roles"),
    "deepspeed": LauncherRow(
        _deepspeed, commands=("deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch")
    ),
    "ray": LauncherRow(_ray, ("ray",)),
    "jax": LauncherRow(_jax, ("jax",)),
    "accelerate": LauncherRow(
        _accelerate,
        programs=(
            "accelerate",
            "accelerate-launch",
            "accelerate.commands.launch",
            "accelerate.commands.accelerate_cli",
            "trl",
            "trl.cli",
        ),
        commands=(
            *("accelerate launch", "accelerate-launch", "accelerate.commands.launch"),
            "accelerate.commands.accelerate_cli launch",
        ),
    ),
    "ssh": LauncherRow(_ssh),
}
"""Every launcher of ours."""
NAMED = plugins.Named("launcher", plugins.LAUNCHERS, tuple(LAUNCHERS))

ON_ITS_OWN = "script"
"""The launcher of a job that names no distribution, and of hosts outside the distribution's group."""
FOR_SLOTS = "torchrun"
"""That of a typed program for which there are several slots."""
FOR_STARTED = "ranks"
"""That of ranks which the platform has started."""


def find_launcher(name: str) -> Launcher:
    """The launcher ``name``.

    Raises:
        UsageError: there is none.
    """
    if name in LAUNCHERS:
        return LAUNCHERS[name].load()
    NAMED.read(name, "--launcher (MUSTER_LAUNCHER)")
    return plugins.load(plugins.LAUNCHERS, name, Launcher)


def every() -> Iterator[Launcher]:
    """All launchers of ours, in the order of the table."""
    return (row.load() for row in LAUNCHERS.values())


def asked_by(kind: str) -> list[tuple[str, Asked]]:
    """The launchers for a kind of distribution, each with why, the first choice first."""
    found = [(name, row.load().asked_by[kind]) for name, row in LAUNCHERS.items() if kind in row.kinds]
    return sorted(found, key=lambda each: each[1].instead)


def asked_by_option(settings: Settings) -> tuple[str, str]:
    """The launcher that an option asks for, and that option's flag; both empty: none does."""
    for name, row in LAUNCHERS.items():
        if row.option and getattr(settings, row.option):
            return name, BY_FIELD[row.option].flag
    return "", ""


def of_program(*names: str) -> str:
    """The launcher whose own command line a program of one of these ``names`` is; empty: none's."""
    return next((name for name, row in LAUNCHERS.items() if not {*names}.isdisjoint(row.programs)), "")


def launching(words: Sequence[str]) -> str:
    """The command, or Python's module, of a launcher that ``words`` run; empty: they run none."""
    name, *behind = wrappers.run_by(words) or ("",)
    called = {name, f"{name} {behind[0]}" if behind else name}  # some are one only with a word that follows
    return name if any(not called.isdisjoint(row.commands) for row in LAUNCHERS.values()) else ""


def command_of(job: Job) -> str:
    """The command, or Python's module, of another launcher that the job's program is; empty: it is none."""
    start = job.entry_point
    return launching((*(("python", "-m") if start.module else ()), start.program, *job.arguments))


def readers(field: str) -> tuple[str, ...]:
    """The launchers that read an option which only some read."""
    return tuple(launcher.name for launcher in every() if field in launcher.reads)


def instead_of(command: str, way: str, job: Job | None = None) -> str:
    """What starts a script as ``command`` would, with ``muster launch`` or ``muster local`` (``way``), for people.

    Empty where ``command`` is no launcher's. ``job``: where the platform starts its ranks, it is they who are started.
    """
    words = next((launcher.instead_of[command] for launcher in every() if command in launcher.instead_of), "")
    if words and job is not None and job.started is not None and job.started.local_size > 1:
        return f"`muster {way} SCRIPT`, without --launcher, starts a script as the ranks of this platform"
    return f"`muster {way} {words}` starts a script as {command} would" if words else ""
