"""Other tools' words for our options, and our commands' words for each other's: hints where a command lacks a word.

Sources: the help of torchrun 2.13, mpirun (Open MPI 4 and 5, MPICH), srun, accelerate, deepspeed and Ray.
"""

from typing import Collection, Iterable, Mapping

from musterpoint.base.records import NamedTuple

ALIKE: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("--hosts", "--nnodes"), ("--nodes", "--num-nodes", "--num-hosts", "--num-machines", "--instance-count", "-N")),
    (
        ("--slots",),
        (
            *("--nproc-per-node", "--nproc", "--nprocs", "--num-processes", "--ntasks-per-node", "--tasks-per-node"),
            *("--ntasks", "--num-gpus", "--gpus", "--gpus-per-node", "--np", "-np", "-n", "-c", "-ppn", "-npernode"),
        ),
    ),
    (("--rollcall-leader",), ("--master-addr", "--rdzv-endpoint", "--main-process-ip", "--coordinator-address")),
    (("--master-port",), ("--main-process-port",)),
    (("--node-rank",), ("--machine-rank", "--host-rank")),
    (("--hosts-file",), ("--hostfile", "--machinefile", "-hostfile", "-machinefile")),
    (("--env",), ("--export", "-x", "-e", "-env", "-genv")),
    (("--job-name",), ("--name", "--rdzv-id", "-J")),
    (("--source-dir",), ("--chdir", "--wdir", "-wdir", "--workdir")),
    (("--stop-after",), ("--timeout", "--time", "--max-run")),
    (("--max-restarts",), ("--retries", "--max-retries")),
    (("--log-prefix",), ("--tag-output", "--label")),
    (("--arguments",), ("--args", "--argv", "--script-args")),
    (("--program",), ("--script", "--entry-point", "--command")),
)
"""For each meaning our flags, of which a command has one at most, and other tools' words."""
OF_TORCHRUN = (
    *("--nnodes", "--nproc-per-node", "--node-rank", "--master-addr", "--master-port"),
    *("--rdzv-endpoint", "--rdzv-backend", "--rdzv-id", "--standalone"),
)
"""Words that a program rarely has itself, so that behind one they were most likely meant for the launcher."""

SWITCHES = frozenset(("--standalone", "--demo", "--cpu-fallback"))
"""Those of both lists that take no value."""
OF_LOCAL = frozenset(
    (
        *("--image", "--stop-after", "--backend", "--env", "--host-slots", "--internet", "--debug", "--demo"),
        *("--distribution", "--hyperparameters", "--source-dir", "--output", "--cpu-fallback", "--hosts"),
    )
)
"""Options of ``muster local`` that no other command has, but for ``muster plan --hosts N``."""


class Typed(NamedTuple):
    """A command line with a program in it: ``command`` with the options ``head``, then ``program``, as it was typed.

    ``flags``: those of the command, and whether each takes a value.
    """

    command: str
    head: tuple[str, ...]
    program: str
    flags: Mapping[str, bool]


def plain(word: str) -> str:
    """``word`` without its value, spelled with dashes."""
    flag = word.partition("=")[0]
    return flag.replace("_", "-") if flag.startswith("--") else flag


def meant(word: str, known: Collection[str]) -> str:
    """The flag among ``known`` that ``word`` stands for; empty: none does."""
    flag = plain(word)
    if flag in known:
        return flag
    rows: Iterable[tuple[str, ...]] = (ours for ours, others in ALIKE if flag in ours or flag in others)
    return next((one for ours in rows for one in ours if one in known), "")
