"""The launchers by name. The file of one is imported when it is asked for, so that a job pays for its own alone.

A name that isn't here may be another package's: it is looked up among the entry points ``musterpoint.launchers`` of
what is installed beside musterpoint.
"""

from typing import Iterator, NamedTuple, cast

from musterpoint.base import plugins
from musterpoint.base.settings import BY_FIELD, Settings
from musterpoint.core.launch.launcher import Asked, Launcher

PACKAGE = "musterpoint.core.launch.launchers"


class Row(NamedTuple):
    """What asks for a launcher, so that it is found before its file is imported."""

    kinds: tuple[str, ...] = ()
    """Kinds of distribution; why is in its :attr:`Launcher.asked_by`."""
    option: str = ""
    """An option, by field, that asks for it in jobs without a distribution."""
    programs: tuple[str, ...] = ()
    """Programs (a file's name, or a module) that are its own command lines."""


_SMDISTRIBUTED = ("smdistributed_modelparallel", "smdistributed_dataparallel")

TABLE: dict[str, Row] = {
    "script": Row(),
    "torchrun": Row(("torch_distributed", "pytorch_ddp", *_SMDISTRIBUTED)),
    "ranks": Row(_SMDISTRIBUTED),
    "mpi": Row(("mpi", *_SMDISTRIBUTED)),
    "tensorflow": Row(("multi_worker_mirrored_strategy",)),
    "parameter-server": Row(("parameter_server",), option="tf_roles"),
    "deepspeed": Row(),
    "ray": Row(("ray",)),
    "jax": Row(("jax",)),
    "accelerate": Row(
        programs=(
            "accelerate",
            "accelerate-launch",
            "accelerate.commands.launch",
            "accelerate.commands.accelerate_cli",
            "trl",
            "trl.cli",
        )
    ),
    "ssh": Row(),
}
"""Every launcher of ours; its object is ``LAUNCHER`` in ``launchers/NAME.py``."""

ON_ITS_OWN = "script"
"""The launcher of a job that names no distribution, and of hosts outside the distribution's group."""
FOR_SLOTS = "torchrun"
"""That of a typed program for which there are several slots."""
FOR_STARTED = "ranks"
"""That of ranks which the platform has started."""


def find(name: str) -> Launcher:
    """The launcher ``name``.

    Raises:
        UsageError: there is none.
    """
    if name in TABLE:
        module = __import__(f"{PACKAGE}.{name.replace('-', '_')}", fromlist=["LAUNCHER"])
        return cast(Launcher, module.LAUNCHER)
    option = BY_FIELD["launcher"]
    option.read(name, "launcher")
    return plugins.load(option.plugins, name, Launcher)


def every() -> Iterator[Launcher]:
    """All launchers of ours, in the order of the table."""
    return map(find, TABLE)


def asked_by(kind: str) -> list[tuple[str, Asked]]:
    """The launchers for a kind of distribution, each with why, the first choice first."""
    found = [(name, find(name).asked_by[kind]) for name, row in TABLE.items() if kind in row.kinds]
    return sorted(found, key=lambda each: each[1].instead)


def asked_by_option(settings: Settings) -> tuple[str, str]:
    """The launcher that an option asks for, and that option's flag; both empty: none does."""
    for name, row in TABLE.items():
        if row.option and getattr(settings, row.option):
            return name, BY_FIELD[row.option].flag
    return "", ""


def of_program(*names: str) -> str:
    """The launcher whose own command line a program of one of these ``names`` is; empty: none's."""
    return next((name for name, row in TABLE.items() if not {*names}.isdisjoint(row.programs)), "")


def readers(field: str) -> tuple[str, ...]:
    """The launchers that read an option which only some read."""
    return tuple(launcher.name for launcher in every() if field in launcher.reads)


def instead_of(command: str) -> str:
    """The arguments of ``muster local`` that start a script as ``command`` would; empty: no launcher's."""
    return next((launcher.instead_of[command] for launcher in every() if command in launcher.instead_of), "")
