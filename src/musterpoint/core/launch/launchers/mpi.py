"""``mpi``: mpirun on the leader, its daemons on the other hosts, the rank stub in front of every rank. No ssh.

mpirun calls our launch agent in place of ssh. Each daemon is started by its own host's supervisor, with that host's
environment, so no variable is on a command line. Flags and variables of each flavour are in
:mod:`musterpoint.core.launch.mpi.open_mpi` and :mod:`musterpoint.core.launch.mpi.hydra`.
"""

from __future__ import annotations

from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.core.fabric.mpirun import INTEL_MPI, MVAPICH, OPEN_MPI, Mpi, assumed_mpi, find_mpi
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.horovod import notes as horovod_notes
from musterpoint.core.launch.horovod import stall_warnings
from musterpoint.core.launch.identity import IDENTITY
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, ProcessPlan, program_arguments, stub_arguments
from musterpoint.core.launch.launcher import MISLEADING, MPIRUN, PYTHONPATH, Asked, Assumed, Hidden, Launcher, Question
from musterpoint.core.launch.launchers import LAUNCHERS
from musterpoint.core.launch.mpi.command import Command, HostRanks, merged, set_elsewhere
from musterpoint.core.launch.mpi.hydra import hydra
from musterpoint.core.launch.mpi.mpirun_options import REASON, Options, read_options
from musterpoint.core.launch.mpi.open_mpi import MANAGERS, open_mpi

RUNNER = """\
import atexit, os, stat, sys
from mpi4py import run
code = 0
def keep_connections():
    for fd in map(int, os.listdir("/proc/self/fd")):
        try: os.set_inheritable(fd, stat.S_ISSOCK(os.fstat(fd).st_mode))
        except OSError: pass
    own = [(os.POSIX_SPAWN_CLOSE, fd) for fd in range(3)]
    os.posix_spawnp("sleep", ["sleep", "150"], os.environ, file_actions=own)
def leave():
    if code and "mpi4py.MPI" in sys.modules:
        for stream in (sys.stdout, sys.stderr):
            try: stream.flush()
            except Exception: pass
        try: "OMPI_COMM_WORLD_SIZE" in os.environ and keep_connections()
        except Exception: pass
        os._exit(code & 255 or 1)
atexit.register(leave)
try: run.main()
except SystemExit as end:
    code = end.code if isinstance(end.code, int) else int(end.code is not None)
    raise
except BaseException as error:
    code = 130 if isinstance(error, KeyboardInterrupt) else 1
    raise
"""
"""Runs the program as ``python -m mpi4py`` does. A failed rank exits after its last exit function and before mpi4py
calls ``MPI_Abort``, with which MPI would kill the other ranks within seconds.

With Open MPI 5 a rank that waits for messages ends as soon as another rank's connection closes. So an idle process
keeps the failed rank's connections open until the job is killed, and the other ranks get their grace.
"""
_MPI4PY = (
    "a rank that fails ends at once, and the others get their grace: it would wait in MPI_Finalize for ever, or cut "
    "their time with MPI_Abort"
)


def plan_mpi(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: mpirun on the leader; elsewhere the daemons that mpirun may ask this host to start.

    Raises:
        LauncherError: this host's MPI can't start the job.
        UsageError: ``custom_mpi_options`` or the number of processes is wrong.
    """
    roster = inputs.roster
    mpi = inputs.known
    if not isinstance(mpi, Mpi):
        raise LauncherError("launcher mpi: this host's MPI is unknown")
    places = _places(inputs)
    options = read_options(inputs.job.distribution, mpi.flavour, inputs.settings.mpi_options)
    command = _command(inputs, mpi, places)
    flags, notes = merged(command.flags, options.flags, set_elsewhere(mpi.configured, inputs.environ))
    command = command._replace(flags=flags, notes=(*command.notes, *notes, *_notes(inputs, mpi, options)))
    world = sum(place.ranks for place in places)
    ranks = next((place.ranks for place in places if place.seat.name == roster.me), 0)
    leads = roster.node_rank == 0
    plan = inputs.plan(
        (_mpirun(inputs, mpi, command),) if leads else (),
        _environment(inputs, command, options, ranks, world),
        notes=command.notes if leads else (),  # they are about mpirun
    )
    before = sum(place.ranks for place in places[: roster.node_rank])
    return plan._replace(
        local_ranks=ranks,
        world_size=world,
        first_rank=before,
        daemons=command.daemons,
        under_mpi=True,
        hydra=mpi.flavour != OPEN_MPI,
        cpu_sets=() if _binds(inputs, mpi, command, options) else plan.cpu_sets,
    )


def _binds(inputs: LaunchInputs, mpi: Mpi, command: Command, options: Options) -> bool:
    """Whether where ranks run is this MPI's business, by its default or because it was told."""
    told = any(flag.key in ("bind-to", "binding", "map-by") for flag in options.flags)
    if mpi.flavour == OPEN_MPI:  # ours is left out where a file or a variable settles it
        return told or not any(flag.key == "bind-to" for flag in command.flags)
    return told or mpi.flavour == INTEL_MPI or any(name in inputs.environ for name in _BINDING)


_BINDING = ("HYDRA_BINDING", "MV2_ENABLE_AFFINITY", "MV2_CPU_MAPPING", "MV2_CPU_BINDING_POLICY")
"""Variables by which Hydra and MVAPICH2 are told where ranks run."""


def _places(inputs: LaunchInputs) -> list[HostRanks]:
    """Ranks of each host: its slots, in host order, up to the number of processes where the job says one."""
    group = inputs.roster.group
    slots = sum(seat.slots for seat in group)
    left = inputs.job.distribution.processes or slots
    if left > slots:
        raise UsageError(
            f"the job asks for {left} MPI processes, and its {len(group)} hosts have {slots} slots: ask for more slots "
            "per host, or fewer processes"
        )
    places = []
    for seat in group:
        places.append(HostRanks(seat, min(seat.slots, left)))
        left -= places[-1].ranks
    return [place for place in places if place.ranks]


def _command(inputs: LaunchInputs, mpi: Mpi, places: list[HostRanks]) -> Command:
    if mpi.flavour == OPEN_MPI:
        manager = next((component for name, component in MANAGERS if inputs.environ.get(name)), "")
        return open_mpi(mpi, places, inputs.roster.seat.slots > inputs.devices.cpus, manager)
    interface = inputs.gloo_interface if inputs.gloo_interface in inputs.devices.interfaces else ""
    others = any(name not in ("lo", interface) for name in inputs.devices.interfaces)
    return hydra(mpi, places, interface, others and not inputs.devices.infiniband)


def _notes(inputs: LaunchInputs, mpi: Mpi, options: Options) -> tuple[str, ...]:
    old_names = [flag.words[1] for flag in options.flags if flag.key.startswith(("mca orte_", "mca plm_rsh_"))]
    ignored = old_names if mpi.flavour == OPEN_MPI and mpi.major > 4 else []
    about_names = (f"{REASON}: {mpi.text} ignores what Open MPI 4 calls {', '.join(ignored)}",) if ignored else ()
    return (*about_names, *_without_rdma(inputs, mpi), *horovod_notes(inputs.environ))


def _without_rdma(inputs: LaunchInputs, mpi: Mpi) -> tuple[str, ...]:
    if mpi.flavour != MVAPICH or inputs.hosts == 1 or inputs.devices.infiniband:
        return ()
    return (
        f"warning: {mpi.text} is mostly built for InfiniBand (ch3:mrail), and this host has no RDMA device: such a "
        "build ends at its start; take another MPI, or a build for TCP",
    )


def _mpirun(inputs: LaunchInputs, mpi: Mpi, command: Command) -> ProcessPlan:
    flags = tuple(argument for flag in command.flags for argument in flag.arguments)
    program = (*stub_arguments(inputs.workspace.interpreter, ()), *_program(inputs))
    if command.sets:
        sets = [(*(argument for flag in one for argument in flag.arguments), *program) for one in command.sets]
        words = sets[0]
        for one in sets[1:]:
            words = (*words, Argument(":", "the next host"), *one)
    else:
        words = program
    return ProcessPlan("launcher", "mpirun", (Argument(mpi.path, mpi.text), *flags, *words), command.own)


def _program(inputs: LaunchInputs) -> tuple[Argument, ...]:
    """The user's program; a Python program runs through mpi4py where its Python has that."""
    workspace = inputs.workspace
    arguments = program_arguments(workspace.argv)
    if workspace.kind not in ("python", "module") or "mpi4py" not in inputs.modules:
        return arguments
    return (arguments[0], Argument("-c", _MPI4PY), Argument(RUNNER), *arguments[1:])


def _environment(
    inputs: LaunchInputs, command: Command, options: Options, ranks: int, world: int
) -> tuple[EnvSetting, ...]:
    """The variables that this host's ranks inherit from their daemon. Those of the job's options replace others."""
    roster = inputs.roster
    identity = (
        EnvSetting("WORLD_SIZE", str(world), "ranks in all; MPI says which one each is"),
        EnvSetting("LOCAL_WORLD_SIZE", str(ranks), "ranks of this host"),
        EnvSetting("NODE_RANK", str(roster.node_rank), "this host's place in the group"),
        EnvSetting("GROUP_RANK", str(roster.node_rank), "this host's place in the group, by torchrun's name"),
        EnvSetting("MASTER_ADDR", inputs.master_address, "where rank 0 listens, for init_method='env://'"),
        EnvSetting("MASTER_PORT", str(roster.master_port), "free on the leader"),
    )
    chosen: dict[str, EnvSetting] = {}
    for setting in (*options.exports, *identity, *inputs.environment(*command.everywhere, *stall_warnings(inputs))):
        if setting.name not in IDENTITY or setting in identity or setting in options.exports:
            chosen.setdefault(setting.name, setting)
    return tuple(chosen.values())


def _before_script(inputs: LaunchInputs) -> int:
    return 2 if "mpi4py" in inputs.modules else 0


def _survey(question: Question) -> Mpi:
    return find_mpi(question.environ, question.reason, question.ask)


def _assumed() -> Assumed:
    return Assumed(
        assumed_mpi(), "there is no mpirun here: the options are those of Open MPI 4; other MPIs have others"
    )


LAUNCHER = Launcher(
    name="mpi",
    summary="mpirun on the leader, whose daemons on all hosts start a rank per slot; no ssh",
    starts="foreign",
    leads=True,
    needs_temporary=True,
    plan=plan_mpi,
    instead_of=dict.fromkeys(LAUNCHERS["mpi"].commands, "--launcher mpi SCRIPT"),
    asked_by={
        "mpi": Asked("the job asks for MPI"),
        "smdistributed_modelparallel": Asked(
            "the job asks for smdistributed model parallelism, whose ranks mpirun starts", needs=MPIRUN
        ),
        "smdistributed_dataparallel": Asked(
            "the job asks for smdistributed data parallelism, whose ranks mpirun starts", needs=MPIRUN
        ),
    },
    uses=("mpi4py",),
    survey=_survey,
    assumed=_assumed,
    reads=("slots", "cpu_binding", "mpi_options"),
    hides=(
        PYTHONPATH,
        Hidden(("RANK", "LOCAL_RANK"), MISLEADING),
        Hidden(
            (
                "OMPI_COMM_WORLD_*",
                "OMPI_UNIVERSE_SIZE*",
                "OMPI_APP_CTX_NUM_PROCS*",
                "OMPI_NUM_APP_CTX*",
                "OMPI_FIRST_RANKS*",
                "OMPI_ARGV*",
                "OMPI_COMMAND*",
                "OMPI_FILE_LOCATION*",
                "OMPI_MCA_ess_*",
                "OMPI_MCA_initial_wdir*",
                "OMPI_MCA_orte_app_num*",
                "OMPI_MCA_orte_hnp_uri*",
                "OMPI_MCA_orte_local_daemon_uri*",
                "OMPI_MCA_orte_launch*",
                "PMI_*",
                "PMI2_*",
                "PMIX_*",
                "MV2_COMM_WORLD_*",
                "MPI_LOCALRANKID*",
                "MPI_LOCALNRANKS*",
                "PALS_*",
                "HYDI_CONTROL_FD*",
            ),
            "of an mpirun around this process: the rank there, and its daemons' addresses",
            but=("PMIX_MCA_",),
        ),
        Hidden(
            (
                "OMPI_MCA_orte_default_hostfile",
                "PRTE_MCA_prte_default_hostfile",
                "HYDRA_HOST_FILE",
                "HYDRA_LAUNCHER",
                "I_MPI_HYDRA_HOST_FILE",
                "I_MPI_HYDRA_BOOTSTRAP",
                "I_MPI_PERHOST",
            ),
            "it names other hosts than the roster, or another way to start daemons",
        ),
    ),
    before_script=_before_script,
)
