"""What was asked of musterpoint and has no effect: variables that nobody reads, options that the launcher doesn't read.

Nothing is refused for it: a variable may be the program's own, and an image may set options for jobs of several kinds.
"""

from __future__ import annotations

import os
import re
from typing import Any, Iterator, Mapping

from musterpoint.base import settings
from musterpoint.base.errors import similar
from musterpoint.base.settings import OPTIONS, PREFIX, ROLE_HOSTS, Settings
from musterpoint.base.spellings import Typed
from musterpoint.core.code.misplaced_options import behind_the_program
from musterpoint.core.code.project import requirements_beside
from musterpoint.core.fabric.devices import allowed_processors
from musterpoint.core.job import platforms
from musterpoint.core.job.fields import small_text
from musterpoint.core.job.model import Job
from musterpoint.core.launch.choose import Choice
from musterpoint.core.launch.launchers import find_launcher, readers
from musterpoint.core.launch.smdistributed import not_asked

_SUPERVISORS = ("AGENT_STAYS", "CPUS", "EXPAND", "FIRST_RANK", "LOCAL_RANK_AT", "SOCKET", "STUB")
"""To a launcher's stubs and agents (control_socket.py, rank_environment.py)."""
_USERS = ("USER_CWD", "USER_PYTHONPATH", "USER_TMPDIR", "USER_PATH", "USER_LD_LIBRARY_PATH", "USER_PYTHONINSPECT")
_PROGRAMS = ("CACHE", "CPU_FALLBACK", "HOSTFILE", "PYTEST_RANK", "ROLE", "ROLES", "SDK_DRIVERS", "STARTUP")
"""To what runs in the user's Python, and to programs of ours."""
INTERNAL = frozenset(
    {
        each
        for each in vars(settings).values()
        if isinstance(each, str) and each[:-1].startswith(PREFIX) and each[-1] != "_"
    }
    | {PREFIX + name for name in (*_SUPERVISORS, *_USERS, *_PROGRAMS)}
)
"""Variables that are no options, and that musterpoint's own processes and images set or read."""

_CROWD = 16
"""Ranks for each processor from which on a job is most likely meant otherwise."""
_OF_TESTS = "MUSTER_TEST_"
_OF_A_SERVICE = re.compile(r"_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)$")
"""How the variables end that Kubernetes gives every pod for every Service of its namespace."""


def ignored_options(
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
    if job.current_host != job.first_host:
        return texts
    launcher, reason = choice.launcher, choice.reason
    if choice.slots > _CROWD * (processors := allowed_processors() or choice.slots):
        texts.append(
            f"warning: {choice.slots} ranks share this host's {processors} processors: starts, and ends, are slow"
        )
    if not _is_launcher(job):
        texts += without_effect(environ, given, launcher, reason)
    by_itself = options.launcher == "auto" and job.distribution.kind == "none"
    if by_itself and environ.get(settings.LOCAL) and not find_launcher(launcher).independent:
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
        and not name.startswith(ROLE_HOSTS)
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
        if not value or value == "0" or not option.of_some or option.field in find_launcher(launcher).reads:
            continue
        if option.field == "slots":
            if not find_launcher(launcher).once:
                continue
            effect = (
                f"launcher {launcher} ({reason}) starts the program once per host; --launcher torchrun or --launcher "
                "ranks starts one rank per slot"
            )
        else:
            effect = (
                f"launcher {launcher} ({reason}) doesn't read it; launcher {' or '.join(readers(option.field))} does"
            )
        yield f"warning: {option.flag} {value} ({option.variable}) has no effect: {effect}"


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
