"""What was asked of musterpoint and has no effect: variables that nobody reads, options that the launcher doesn't read.

Nothing is refused for it: a variable may be the program's own, and an image may set options for jobs of several kinds.
"""

from __future__ import annotations

import os
import re
import shlex
from itertools import chain
from typing import Any, Collection, Iterator, Mapping, Sequence

from musterpoint.base import settings, spellings
from musterpoint.base.errors import similar
from musterpoint.base.settings import OPTIONS, PREFIX, Settings
from musterpoint.base.spellings import Typed
from musterpoint.core.code.project import requirements_beside
from musterpoint.core.fabric.devices import allowed_processors
from musterpoint.core.job import platforms
from musterpoint.core.job.fields import small_text
from musterpoint.core.job.model import Job
from musterpoint.core.launch.choose import Choice
from musterpoint.core.launch.smdistributed import not_asked
from musterpoint.core.launch.table import find, readers

INTERNAL = frozenset(
    {
        settings.ATTEMPT,
        settings.CODE_COPY,
        settings.CODE_COPY_OF,
        settings.EVENTS,
        settings.LOCAL,
        settings.MODULE,
        settings.OUTER,
        settings.PROGRAM_ARGS,
        settings.SHOW_RANKS,
        settings.SHOWN,
        settings.SOCKET_TOKEN,
        settings.TERMINAL,
        # from the supervisor to a launcher's stubs and agents (control_socket.py, rank_environment.py)
        "MUSTER_AGENT_STAYS",
        "MUSTER_CPUS",
        "MUSTER_EXPAND",
        "MUSTER_FIRST_RANK",
        "MUSTER_LOCAL_RANK_AT",
        settings.PLANNED,
        "MUSTER_SOCKET",
        "MUSTER_STUB",
        "MUSTER_USER_CWD",
        "MUSTER_USER_PYTHONPATH",
        "MUSTER_USER_TMPDIR",
        "MUSTER_USER_PATH",
        "MUSTER_USER_LD_LIBRARY_PATH",
        "MUSTER_USER_PYTHONINSPECT",
        # to what runs in the user's Python, and to programs of ours
        "MUSTER_AWS_REQUEST",
        "MUSTER_CACHE",
        "MUSTER_CPU_FALLBACK",
        "MUSTER_HOSTFILE",
        "MUSTER_PYTEST_RANK",
        "MUSTER_SDK_DRIVERS",
        "MUSTER_STARTUP",
    }
)
"""Variables that are no options, and that musterpoint's own processes and images set or read."""

_CROWD = 16
"""Ranks for each processor from which on a job is most likely meant otherwise."""
_FLAGS = frozenset(flag for option in OPTIONS for flag in (option.flag, *option.aliases))
_LOCAL = spellings.OF_LOCAL | (_FLAGS - {"--nnodes", "--node-rank", "--rollcall-leader", "--job-name", "--platform"})
"""The flags of ``muster local`` among those that are looked for."""
_OF_TESTS = "MUSTER_TEST_"
_OF_A_SERVICE = re.compile(r"_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)$")
"""How the variables end that Kubernetes gives every pod for every Service of its namespace."""


def unheeded(
    job: Job,
    options: Settings,
    environ: Mapping[str, str],
    given: Mapping[str, Any],
    choice: Choice,
    typed: bool,
    line: Typed | None = None,
) -> list[str]:
    """All that is to be said about a job, on this host: what concerns all hosts is said by the leader alone.

    ``given`` are the options of the command line by field. ``typed``: a person named the program, in ``line``.
    """
    texts = unknown_variables(environ)
    texts += [
        f"warning: {flag} has no effect: this option is gone: {settings.REMOVED[field]}"
        for field, flag, _ in settings.removed_options()
        if field in given
    ]
    if job.current_host != job.leader:
        return texts
    launcher, reason = choice.launcher, choice.reason
    if choice.slots > _CROWD * (processors := allowed_processors() or choice.slots):
        texts.append(
            f"warning: {choice.slots} ranks share this host's {processors} processors: starts, and ends, are slow"
        )
    if not _is_launcher(job):
        texts += without_effect(environ, given, launcher, reason)
    by_itself = options.launcher == "auto" and job.distribution.kind == "none" and not find(launcher).independent
    if by_itself and environ.get(settings.LOCAL):
        texts.append(platform_instead(launcher))
    if not typed:
        program = small_text(os.path.join(job.paths.code, job.entry_point.program))
        texts += filter(None, [not_asked(job, environ, program)])
    if typed and options.installer == "auto" and not options.requirements:
        texts += requirements(job)
    if line is not None and not environ.get(settings.LOCAL):
        texts += behind_the_program(os.path.join(job.paths.code, job.entry_point.program), job.arguments, line)
    return texts


def _is_launcher(job: Job) -> bool:
    """Whether the program is itself a launcher, which gets the name of the script: it starts the ranks."""
    return "train-script" in [entry.name for entry in job.hyperparameters] or any(
        word.partition("=")[0] == "--train-script" for word in job.arguments
    )


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A warning for each ``MUSTER_*`` variable that nothing reads, with the option's that is spelled nearly so."""
    known = {name for option in OPTIONS for name in (option.variable, option.older) if name} | INTERNAL
    strange = [
        name
        for name in sorted(environ)
        if name.startswith(PREFIX)
        and name not in known
        and not name.startswith(_OF_TESTS)
        and not _is_of_a_service(name, environ)
    ]
    if not strange:
        return []
    options, gone = [option.variable for option in OPTIONS], dict(settings.removed_variables(environ))
    texts = []
    for name in strange:
        if name in gone:
            texts.append(f"warning: {name} has no effect: this option is gone: {gone[name]}")
            continue
        near = similar(name, options)
        hint = f"did you mean {near}?" if near else "`muster env --help` and docs/options.md list those that are"
        texts.append(f"warning: {name} is no variable of musterpoint and has no effect here: {hint}")
    return texts


def _is_of_a_service(name: str, environ: Mapping[str, str]) -> bool:
    """Whether Kubernetes made the variable, for a Service whose name begins with ``muster``."""
    found = _OF_A_SERVICE.search(name)
    return found is not None and f"{name[: found.start()]}_SERVICE_HOST" in environ


def without_effect(environ: Mapping[str, str], given: Mapping[str, Any], launcher: str, reason: str) -> Iterator[str]:
    """A warning for each option that was given and that ``launcher``, chosen for ``reason``, doesn't read.

    ``environ`` has the ``MUSTER_*`` variables, ``given`` the options of the command line by field.
    """
    for option in OPTIONS:
        value = str(given.get(option.field, "")) or environ.get(option.variable, "")
        # 0 asks for any free port, as muster local does
        if not value or value == "0" or not option.of_some or option.field in find(launcher).reads:
            continue
        if option.field == "slots":
            effect = (
                f"launcher {launcher} ({reason}) starts the program once per host; --launcher torchrun or --launcher "
                "ranks starts one rank per slot"
            )
        else:
            effect = (
                f"launcher {launcher} ({reason}) doesn't read it; launcher {' or '.join(readers(option.field))} does"
            )
        yield f"warning: {option.flag} {value} ({option.variable}) has no effect: {effect}"


def behind_the_program(path: str, arguments: Sequence[str], line: Typed) -> list[str]:
    """A sentence where ``arguments`` of the program at ``path`` are called like options of ours, or of torchrun, with
    the command line that was meant: there they stand before the program. It isn't said of a name that the program's own
    text has, nor where it is no file but a command, such as torchrun.
    """
    if not os.path.isfile(path):
        return []
    ours = {*line.flags, *_FLAGS, *spellings.OF_LOCAL, *spellings.OF_TORCHRUN}
    if all(spellings.plain(word) not in ours for word in arguments):
        return []
    text, rest = small_text(path), list(arguments)
    found = dict[str, tuple[str, list[str]]]()
    for word in arguments:
        name, equals, value = word.partition("=")
        flag = spellings.plain(word)
        if flag not in ours or _has(text, name, flag):
            continue
        at = rest.index(word)
        valued = line.flags.get(flag, flag not in spellings.SWITCHES) and not equals
        behind = [next_ for next_ in rest[at + 1 : at + 2] if valued and not next_.startswith("-")]
        rest[at : at + 1 + len(behind)] = []
        found[name] = flag, [value] if equals else behind
    if not found:
        return []
    program = os.path.basename(path)
    meant = _meant(found.values(), line)
    return [
        f"{', '.join(found)} behind {program} {'goes' if len(found) == 1 else 'go'} to the program. Options of "
        f"musterpoint stand before it: {meant} {shlex.join((line.program, *rest))}"
    ]


def _meant(found: Collection[tuple[str, Sequence[str]]], line: Typed) -> str:
    """The command with its options and those ``found``, each with its value; ``muster local`` where it has one that
    the command lacks.
    """
    here = [(_spelled(flag, line.flags), value) for flag, value in found]
    there = [(spellings.meant(flag, _LOCAL), value) for flag, value in found]
    is_local = any(word and not own for (own, _), (word, _) in zip(here, there))
    start = ["muster", "local"] if is_local else [*line.command.split(), *line.head]
    words = [(word, *value) for word, value in (there if is_local else here) if word]
    return shlex.join((*start, *chain.from_iterable(words)))


def _spelled(flag: str, known: Collection[str]) -> str:
    """``flag`` as a command with the flags ``known`` spells it; empty: it has none like it."""
    same = (flag, f"--muster-{flag.removeprefix('--')}")
    # --nnodes, which means the same, counts hosts that are there already
    found = next((each for each in same if each in known), "")
    return found or ("" if flag == "--hosts" else spellings.meant(flag, known))


def _has(text: str, word: str, flag: str) -> bool:
    """Looks for a flag in a program's text, as it was typed or not, or for its bare name in quotes."""
    name = flag.removeprefix("--")
    quoted = (f"{mark}{bare}{mark}" for bare in (name, name.replace("-", "_")) for mark in "\"'")
    return any(each in text for each in (word, flag, *quoted))


def platform_instead(launcher: str) -> str:
    """What ``muster local`` says of the launcher that it chose for a job without a distribution."""
    return (
        f"launcher {launcher}, since neither --launcher nor --distribution was given; SageMaker starts it only for a "
        "job with a distribution"
    )


def requirements(job: Job) -> list[str]:
    """A note about packages that a typed program lists and that nobody was asked to install.

    On SageMaker the container's own toolkit has installed them.
    """
    if platforms.load(job.platform).installs:
        return []
    found = requirements_beside(job.entry_point.program, job.paths.code)
    return [f"{found} is left as it is; --installer pip (MUSTER_INSTALLER) installs what it lists"] if found else []
