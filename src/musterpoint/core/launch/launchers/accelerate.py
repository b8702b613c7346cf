"""``accelerate``: the ranks of launcher ``ranks``, with the variables that ``accelerate launch`` would set for them.

``accelerate launch`` itself is left out: without GPUs, and with a configuration file of another world, it starts worlds
of one and ends with 0. The values are accelerate's own (:mod:`musterpoint.core.fabric.accelerate_config`).
"""

from __future__ import annotations

import os

from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.fabric.accelerate_config import ASSUMED, FILE, WORDS, Accelerate, ask_accelerate, read_without
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.model import Job
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.launcher import Assumed, Launcher, Question, Wanted
from musterpoint.core.launch.launchers import LAUNCHERS, find_launcher
from musterpoint.core.launch.launchers.ranks import plan_ranks
from musterpoint.core.launch.rendezvous import rendezvous

USE_CPU = "ACCELERATE_USE_CPU"
WHAT = {
    USE_CPU: "whether ranks compute on CPUs",
    "ACCELERATE_MIXED_PRECISION": "mixed precision",
    "ACCELERATE_DYNAMO_": "torch.compile",
    "ACCELERATE_FP8_": "FP8",
    "ACCELERATE_USE_FSDP": "FSDP",
    "FSDP_": "FSDP",
    "ACCELERATE_DEEPSPEED_": "DeepSpeed",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_CONFIG_DS_": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "MEGATRON_LM_": "Megatron-LM",
    "PARALLELISM_CONFIG_": "kinds of parallelism",
    "ACCELERATE_USE_PARALLELISM_": "kinds of parallelism",
}
"""What accelerate's variables are about, by how their names begin."""


def plan_accelerate(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: one process per slot.

    Raises:
        LauncherError: accelerate would make each rank a world of one.
    """
    found = inputs.known
    assert isinstance(found, Accelerate), "accelerate was not asked"
    several = inputs.roster.world_size > 1
    if several and not found.backend:
        raise LauncherError(
            f"launcher accelerate: accelerate {found.version} knows no way for {inputs.roster.world_size} ranks on "
            f"{inputs.roster.me} to meet, so that each would be a world of one: check that this host's torch sees its "
            f"devices, or set {USE_CPU}=true to train on CPUs"
        )
    plan = plan_ranks(inputs)
    own = _variables(inputs, found)
    names = {setting.name for setting in own}
    kept = tuple(setting for setting in plan.environment if setting.name not in names)
    # with XLA's own meeting nobody connects to the master port
    watched = several and not inputs.devices.neuron_cores
    return plan._replace(
        environment=(*kept, *own),
        notes=(*plan.notes, *_notes(inputs, found)),
        meeting=rendezvous(inputs, required=True) if watched else None,
    )


def _variables(inputs: LaunchInputs, found: Accelerate) -> tuple[EnvSetting, ...]:
    """accelerate's variables. Those that a file or a command line asks for replace the environment's, as there."""
    asked = bool(found.file or found.script)
    source = " and ".join(filter(None, (found.file, "the words given" if found.script else "")))
    settings = []
    for name, value in found.variables.items():
        if name in inputs.environ and not asked:
            continue
        what = next((text for start, text in WHAT.items() if name.startswith(start)), "an option")
        settings.append(EnvSetting(name, value, f"{what}: as accelerate launch sets it{source and ', from ' + source}"))
    if found.on_cpus and not (USE_CPU in inputs.environ and not asked):
        reason = "ranks compute on CPUs; without it accelerate would make each of them a world of one"
        settings = [EnvSetting(USE_CPU, "true", reason) if each.name == USE_CPU else each for each in settings]
    return tuple(settings)


def _notes(inputs: LaunchInputs, found: Accelerate) -> tuple[str, ...]:
    """Sentences about what is not followed."""
    roster = inputs.roster
    here = {
        "num_processes": (roster.world_size, "this job's hosts have that many slots"),
        "num_machines": (inputs.hosts, "this job has that many hosts"),
        "machine_rank": (roster.node_rank, "this host's place in the job"),
        "main_process_ip": (inputs.master_address, "the first host of the job"),
        "main_process_port": (roster.master_port, "free on the leader, or --master-port"),
    }
    notes = []
    for name, (value, why) in here.items():
        given, where = found.shape.get(name, (None, ""))
        if given is None or str(given) == str(value) or (name.startswith("main_") and inputs.hosts == 1):
            continue
        place = found.file if where == FILE else "accelerate launch"
        notes.append(f"{place}: {name} {given} isn't followed, it is {value} here: {why}")
    if found.unused:
        options = ", ".join(found.unused)
        notes.append(f"accelerate launch: {options} isn't followed: musterpoint starts the ranks itself")
    if found.on_cpus and found.kind not in ("cpu", "one device"):
        lost = f"; accelerate doesn't use {found.kind} on CPUs" if found.kind in ("FSDP", "Megatron-LM") else ""
        notes.append(
            f"warning: {found.file or 'accelerate launch'} asks for {found.kind}, but accelerate finds no accelerator "
            f"on {roster.me}: its ranks compute on CPUs{lost}"
        )
    return tuple(notes)


# -- command lines of accelerate and trl --

STARTS = ("auto", "accelerate")
"""Values of --launcher under which ``accelerate launch`` as PROGRAM is translated."""
NO_TRAINING = ("chat", "env", "skills", "vllm-serve")
"""Commands of trl that start no ranks."""


def typed_words(job: Job, settings: Settings) -> tuple[str, ...] | None:
    """The words after ``accelerate launch``, where the job's program is that; else None.

    Raises:
        UsageError: the program starts ranks of its own, which would make worlds of their own.
    """
    name = job.entry_point.program.rpartition("/")[2]
    words = job.arguments
    if job.entry_point.module:
        name = {
            "accelerate.commands.launch": "accelerate-launch",
            "accelerate.commands.accelerate_cli": "accelerate",
            "trl.cli": "trl",
        }.get(name, "")
    if not words or (settings.launcher != "auto" and find_launcher(settings.launcher).independent):
        return None
    if name == "trl" and words[0] not in NO_TRAINING and not words[0].startswith("-"):
        raise UsageError(
            f"PROGRAM is `trl {words[0]}`, which hands over to `accelerate launch`, a launcher of its own: start its "
            f"script instead, `muster launch --launcher accelerate -m trl.scripts.{words[0]} ...` with the same "
            "arguments"
        )
    if name == "accelerate" and words[0] == "launch":
        words = words[1:]
    elif name != "accelerate-launch":
        return None
    if settings.launcher not in STARTS:
        raise UsageError(
            f"--launcher {settings.launcher}: PROGRAM is `accelerate launch`, a launcher of its own, which each rank "
            "would start: leave --launcher out (its options are then followed), or give the script itself as PROGRAM"
        )
    return words


def as_typed(job: Job, settings: Settings, found: Accelerate) -> tuple[Job, int | None]:
    """The job with the program that follows ``accelerate launch``, and the ranks per host that its options ask for.

    Raises:
        UsageError: the options contradict the job's hosts or --slots.
    """
    hosts = len(job.group_hosts)
    machines, processes = found.given("num_machines", WORDS), found.given("num_processes", WORDS)
    if machines is not None and machines != hosts:
        raise UsageError(
            f"accelerate launch --num_machines {machines}: this job has {hosts} host(s); leave it out, or, where the "
            f"platform doesn't name the hosts, say where they meet: muster launch --nnodes {machines} --node-rank I "
            "--rollcall-leader HOST accelerate launch ..."
        )
    slots = None
    if processes is not None:
        if processes < 1 or processes % hosts:
            raise UsageError(
                f"accelerate launch --num_processes {processes}: the number of all ranks, expected a multiple of the "
                f"job's {hosts} host(s); leave it out for one rank per device"
            )
        slots = processes // hosts
        if settings.slots not in (None, slots):
            raise UsageError(
                f"accelerate launch --num_processes {processes} is {slots} rank(s) on each of {hosts} host(s), and "
                f"--slots is {settings.slots}: give one of them"
            )
    start = job.entry_point._replace(program=found.script, module=found.module)
    return job._replace(entry_point=start, arguments=found.arguments), slots


TYPED = "the program is `accelerate launch`"


def _typed(question: Question) -> Wanted | None:
    """The program of an `accelerate launch`, with the options of that line."""
    words = typed_words(question.job, question.settings)
    if words is None:
        return None
    found, assumed = _answer(question, words)
    job, slots = as_typed(question.job, question.settings, found)
    settings = question.settings._replace(slots=slots or question.settings.slots)
    return Wanted(job, settings, LAUNCHER.name, TYPED, found, assumed)


def _answer(question: Question, words: tuple[str, ...]) -> tuple[Accelerate, str]:
    """What accelerate makes of its line; in a plan, where it can't be asked, what the line says itself, and a note."""
    try:
        return _ask(question, words), ""
    except LauncherError as error:
        if question.lacks is None:
            raise
        question.lacks(error)
    return read_without(words), _assumed().note


def _survey(question: Question) -> Accelerate:
    return _ask(question, ())


def _ask(question: Question, words: tuple[str, ...]) -> Accelerate:
    given, code = question.settings.accelerate_config, question.job.paths.code
    config = os.path.abspath(given) if given and os.path.exists(given) else given  # else it is where the code is
    return ask_accelerate(question.interpreter, words, config, code, question.environ, question.ask)


def _assumed() -> Assumed:
    return Assumed(
        ASSUMED, "the variables that accelerate would set for the ranks aren't shown: only accelerate itself knows them"
    )


LAUNCHER = Launcher(
    name="accelerate",
    summary="a rank per slot, as ranks, with the variables that accelerate launch would set",
    starts="us",
    plan=plan_accelerate,
    instead_of={
        **dict.fromkeys(LAUNCHERS["accelerate"].programs, "--launcher accelerate SCRIPT"),
        **dict.fromkeys(("trl", "trl.cli"), "--launcher accelerate -m trl.scripts.COMMAND"),
    },
    typed=_typed,
    takes_started=True,
    needs="accelerate",
    survey=_survey,
    assumed=_assumed,
    reads=("slots", "accelerate_config", "cpu_binding"),
)
