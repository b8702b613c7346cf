"""For jobs whose scripts import smdistributed: whether they get musterpoint's own, and checks before the start."""

import os
from functools import cache
from typing import Any, Callable, Mapping

import musterpoint
from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import parse
from musterpoint.core.job.model import Job
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.launcher import Lacks, Launcher, refuse
from musterpoint.core.rollcall.roster import Roster

LIBRARY = os.path.join(os.path.dirname(os.path.dirname(musterpoint.__file__)), "musterpoint_smdistributed")
"""The folder of musterpoint's smdistributed, which the job's programs import."""
SWITCH = "SMDISTRIBUTED_SHIM"
DATAPARALLEL = "smdistributed.dataparallel"
MODELPARALLEL = "smdistributed.modelparallel"
KINDS = ("smdistributed_dataparallel", "smdistributed_modelparallel")
PARAMETERS = "mp_parameters"
VARIABLE = "SM_HP_MP_PARAMETERS"
_BESIDE = {"modelparallel": ', "mpi": {"enabled": true}'}
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


def asking(library: str, local: bool) -> str:
    """Words by which a person asks for ``dataparallel`` or ``modelparallel``, in ``muster local`` or an estimator."""
    form = f'{{"smdistributed": {{"{library}": {{"enabled": true}}}}{_BESIDE.get(library, "")}}}'
    return f"--distribution '{form}'" if local else f"the estimator's distribution={form.replace('true', 'True')}"


def not_asked(job: Job, environ: Mapping[str, str], program: str) -> str:
    """A warning where the text of a ``program`` imports a library, and its job names no distribution; else empty.

    SageMaker's SDK v2 drops keys that it doesn't know without a word, such as one without its level ``smdistributed``.
    """
    imported = [
        line for line in program.splitlines() if line.startswith(("import smdistributed.", "from smdistributed."))
    ]
    library = next((name for name in ("modelparallel", "dataparallel") if any(name in line for line in imported)), "")
    if not library or job.distribution.kind != "none" or environ.get(SWITCH) == "1" or _packages(job, environ):
        return ""
    return (
        f"warning: {job.entry_point.program} imports smdistributed.{library}, and the job names no distribution: "
        f"{asking(library, local=False)} asks for it; the SDK drops other forms without a word"
    )


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
    started = [f"launcher {launcher.name}: {why}"] if job.distribution.kind in KINDS and not first else []
    if not wanted(job, environ):
        return tuple(started)
    _, values = _checked_parameters(job, environ)
    idle = [name for name in values if name not in _library().KNOWN]
    if idle:
        started.append(f"{', '.join(idle)}: no parameters of smdistributed.modelparallel, so without effect")
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


def check_modules(job: Job, environ: Mapping[str, str], has: Callable[[str], bool], lacks: Lacks = refuse) -> None:
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
    where, values = _checked_parameters(job, environ)
    if not values or launcher.once:
        return  # a program that is started once starts its ranks itself, if any

    def degree(name: str) -> int:
        return values.get(name) or 1

    partitions, tensor = degree("pipeline_parallel_degree"), degree("tensor_parallel_degree")
    replica = partitions * tensor
    if plan.world_size % replica:
        degrees = f"partitions {partitions}" + (f" x tensor_parallel_degree {tensor}" if tensor > 1 else "")
        raise UsageError(
            f"{where} has {degrees}, so one replica of the model is {replica} ranks, but the job has "
            f"{plan.world_size}: ask for a multiple of {replica} (processes_per_host, --slots, hosts), or change them"
        )
    copies = plan.world_size // replica
    for name in ("sharded_data_parallel_degree", "hybrid_shard_degree"):
        if copies % degree(name):
            raise UsageError(
                f"{where} has {name} {degree(name)}, which doesn't divide the job's {copies} copies of the model: ask "
                f"for a multiple of {degree(name) * replica} ranks (processes_per_host, --slots, hosts), or change it"
            )
    shards = values.get("hybrid_shard_degree") or copies
    for name in ("context_parallel_degree", "expert_parallel_degree"):
        if shards % degree(name):
            raise UsageError(
                f"{where} has {name} {degree(name)}, which doesn't divide the {shards} ranks that shard one copy of "
                "the model: choose one that does, or another hybrid_shard_degree"
            )
    asked = job.distribution.processes_per_host
    if job.distribution.kind == "smdistributed_modelparallel" and asked and asked != plan.local_ranks:
        raise UsageError(
            f"ranks per host: the job's processes_per_host is {asked}, and {plan.host} would run {plan.local_ranks}, "
            "but placement counts on the same number: leave --slots out, or set processes_per_host to it"
        )


def _checked_parameters(job: Job, environ: Mapping[str, str]) -> tuple[str, Mapping[str, Any]]:
    """Where the parameters are from; and the parameters by today's names, each in its type.

    Those of AWS's library, where the job wants no other, are left to it.

    Raises:
        UsageError: one of them is wrong, or two contradict each other.
    """
    where, given = _parameters(job, environ)
    if not given or environ.get(SWITCH) == "0":
        return where, {}
    library = _library()
    try:
        return where, library.check(given, where)
    except library.ParameterError as error:
        raise UsageError(str(error)) from None


@cache
def _library() -> Any:
    """The library's own rules of its parameters: a file of the standard library only, loaded by its path.

    The package can't be imported here: it answers ``import smdistributed`` in the process that has imported it.
    """
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("parameters", [os.path.join(LIBRARY, "shared")])
    if spec is None or spec.loader is None:
        raise UsageError(f"{LIBRARY}: musterpoint's smdistributed isn't there; install musterpoint anew")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
