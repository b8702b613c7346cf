"""For jobs whose scripts import smdistributed: whether they get musterpoint's own, and checks before the start."""

from typing import Any, Callable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count, parse
from musterpoint.core.job.model import Job
from musterpoint.core.launch.launcher import Lacks, Launcher, refuse
from musterpoint.core.launch.plan import LaunchPlan
from musterpoint.core.rollcall.roster import Roster

SWITCH = "SMDISTRIBUTED_SHIM"
DATAPARALLEL = "smdistributed.dataparallel"
MODELPARALLEL = "smdistributed.modelparallel"
KINDS = ("smdistributed_dataparallel", "smdistributed_modelparallel")
PARAMETERS = "mp_parameters"
VARIABLE = "SM_HP_MP_PARAMETERS"
TOKEN = "SMDISTRIBUTED_TOKEN"
"""The variable by which ranks prove to each other that they are of one job, where they meet without torch."""


def wanted(job: Job, environ: Mapping[str, str]) -> bool:
    """Whether the programs of ``job`` get musterpoint's smdistributed, where AWS's isn't installed.

    Raises:
        UsageError: the variable that switches it on or off has another value than 0 or 1.
    """
    switch = environ.get(SWITCH, "")
    if switch not in ("", "0", "1"):
        raise UsageError(
            f"{SWITCH}={switch}: expected 0 (never musterpoint's smdistributed) or 1 (always, also where AWS's is "
            "installed); leave it out for AWS's where there is one"
        )
    return switch == "1" or (switch != "0" and bool(_packages(job, environ)))


def _packages(job: Job, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The packages that scripts of ``job`` expect."""
    model = job.distribution.kind == "smdistributed_modelparallel" or job.distribution.parameters is not None
    given = environ.get(VARIABLE, "").strip() not in ("", "{}")
    return (*((DATAPARALLEL,) if job.distribution.dataparallel else ()), *((MODELPARALLEL,) if model or given else ()))


def token(roster: Roster, settings: Settings) -> str:
    """The value of :data:`TOKEN`, which all hosts make alike of what is known to the job's hosts alone."""
    from musterpoint.core.channel.secret import derived

    return derived(settings.secret or roster.session, f"smdistributed {roster.attempt}")


def notes(job: Job, environ: Mapping[str, str], launcher: Launcher, why: str) -> tuple[str, ...]:
    """Notes for the log: whose package is used; and the launcher, chosen for ``why``, if it isn't the first choice."""
    asked = launcher.asked_by.get(job.distribution.kind)
    first = asked is not None and not asked.instead
    started = (f"launcher {launcher.name}: {why}",) if job.distribution.kind in KINDS and not first else ()
    if not wanted(job, environ):
        return started
    packages = " and ".join(_packages(job, environ) or (DATAPARALLEL, MODELPARALLEL))
    ours = f"{packages} {'are' if ' and ' in packages else 'is'} musterpoint's own, on PyTorch or TensorFlow"
    forced = environ.get(SWITCH) == "1"
    return (
        *started,
        ours
        + (
            f", also where the program's Python has AWS's: {SWITCH}=1"
            if forced
            else f", unless the program's Python has AWS's ({SWITCH}=0 leaves it out)"
        ),
    )


def check(job: Job, environ: Mapping[str, str], has: Callable[[str], bool], lacks: Lacks = refuse) -> None:
    """Checks that the script can import the package; ``has`` asks the program's Python, with its own PYTHONPATH.

    ``lacks`` is told that there is no framework for musterpoint's.

    Raises:
        UsageError: there is no package for what the job asks for, and musterpoint's can't replace it.
    """
    asked = DATAPARALLEL if job.distribution.dataparallel else ""
    if job.distribution.kind == "smdistributed_modelparallel":
        asked = MODELPARALLEL
    if not asked:
        return
    ours = wanted(job, environ)
    if environ.get(SWITCH) == "1" or has(asked):
        return
    library = "model" if asked == MODELPARALLEL else "data"
    asks = f"the job asks for smdistributed {library} parallelism, but the program's Python has"
    if not ours:
        raise UsageError(f"{asks} no {asked}, and {SWITCH}=0 leaves musterpoint's out: unset it, or install AWS's")
    if not has("torch") and not has("tensorflow"):
        lacks(
            UsageError(
                f"{asks} neither AWS's {asked} nor torch nor tensorflow, one of which musterpoint's needs: install it"
            )
        )


def check_layout(job: Job, environ: Mapping[str, str], launcher: Launcher, plan: LaunchPlan) -> None:
    """Checks the model-parallel parameters against each other and against the ranks that ``plan`` starts.

    Raises:
        UsageError: a parameter is wrong, or the partitions don't fit the number of ranks.
    """
    where, given = _parameters(job, environ)
    if not given:
        return
    partitions = _degree(given, ("pipeline_parallel_degree", "partitions"), where)
    tensor = _degree(given, ("tensor_parallel_degree",), where)
    _degree(given, ("microbatches",), where)
    for first, second in (("ddp", "horovod"), ("fp16", "bf16")):
        if given.get(first) is True and given.get(second) is True:
            raise UsageError(f"{where} has both {first} and {second}: choose one")
    for name in ("ddp_port", "ddp_dist_backend"):
        if given.get(name) not in (None, "auto") and given.get("ddp", False) in (False, "false", "False"):
            raise UsageError(f"{where} has {name} without ddp: add ddp, or leave {name} out")
    default = given.get("default_partition", 0)
    if isinstance(default, int) and default >= partitions:
        raise UsageError(
            f"{where} has default_partition {default} and {partitions} partitions, which are counted from 0: it must "
            f"be less than {partitions}"
        )
    if launcher.once:
        return  # the program starts its ranks itself, if any
    replica = partitions * tensor
    if plan.world_size % replica:
        degrees = f"partitions {partitions}" + (f" x tensor_parallel_degree {tensor}" if tensor > 1 else "")
        raise UsageError(
            f"{where} has {degrees}, so one replica of the model is {replica} ranks, but the job has "
            f"{plan.world_size}: ask for a multiple of {replica} (processes_per_host, --slots, hosts), or change them"
        )
    for name in ("sharded_data_parallel_degree", "hybrid_shard_degree"):
        degree = _degree(given, (name,), where) if given.get(name) not in (0, "0") else 1
        if plan.world_size // replica % degree:
            raise UsageError(
                f"{where} has {name} {degree}, which doesn't divide the job's {plan.world_size // replica} copies of "
                f"the model: ask for a multiple of {degree * replica} ranks (processes_per_host, --slots, hosts), or "
                "change it"
            )
    all_left = given.get("hybrid_shard_degree") in (None, 0, "0")
    shards = plan.world_size // replica if all_left else _degree(given, ("hybrid_shard_degree",), where)
    for name in ("context_parallel_degree", "expert_parallel_degree"):
        if shards % _degree(given, (name,), where):
            raise UsageError(
                f"{where} has {name} {given[name]}, which doesn't divide the {shards} ranks that shard one copy of the "
                "model: choose one that does, or another hybrid_shard_degree"
            )
    asked = job.distribution.processes_per_host
    if job.distribution.kind == "smdistributed_modelparallel" and asked and asked != plan.local_ranks:
        raise UsageError(
            f"ranks per host: the job's processes_per_host is {asked}, and {plan.host} would run {plan.local_ranks}, "
            "but placement counts on the same number: leave --slots out, or set processes_per_host to it"
        )


def _parameters(job: Job, environ: Mapping[str, str]) -> tuple[str, Mapping[str, Any]]:
    """Where the parameters are from, and the parameters; those that only the library can read are left to it."""
    if job.distribution.parameters is not None:
        return f"the hyperparameter {PARAMETERS}", job.distribution.parameters
    text = environ.get(VARIABLE, "").strip()
    if not text.startswith(("{", "[")):
        return VARIABLE, {}
    try:
        given = parse(text, VARIABLE)
    except UsageError:
        given = None
    if not isinstance(given, dict):
        raise UsageError(f'{VARIABLE}={text:.200}: expected a JSON object such as {{"partitions": 2}}')
    return VARIABLE, given


def _degree(given: Mapping[str, Any], names: tuple[str, ...], where: str) -> int:
    """The first of the names that is given, as a number from 1 on; 1 where none is."""
    name = next((each for each in names if given.get(each) is not None), "")
    if not name:
        return 1
    value = given[name]
    try:
        return count(value.strip() if isinstance(value, str) else value, name)
    except UsageError:
        raise UsageError(f"{where} has {name} {value!r:.80}: expected a whole number, 1 or more") from None
