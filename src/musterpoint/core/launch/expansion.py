"""``$LOCAL_RANK`` and the like in the arguments of an AzureML job's program, which its guides write so.

A shell in front of ``muster launch`` has replaced them already; here are those that it couldn't know, for they differ
by rank, and those of jobs that no shell starts (SDK v1). A rank that a launcher starts gets them from its stub.
"""

from __future__ import annotations

import re
from typing import Mapping

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.plan import Argument, LaunchPlan, ProcessPlan

NAMES = ("LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "RANK")
"""The variables that are replaced, as ``$NAME`` or ``${NAME}``; no name begins with one before it."""
_ANY = "|".join(NAMES)
_NAME = re.compile(rf"\$(?:\{{({_ANY})\}}|({_ANY})(?![A-Za-z0-9_]))")


def expanded(word: str, environment: Mapping[str, str]) -> str:
    """``word`` with the values of :data:`NAMES`; one that isn't set stays as it is written."""
    return _NAME.sub(lambda found: environment.get(found[1] or found[2], found[0]), word)


def expand(plan: LaunchPlan, environ: Mapping[str, str]) -> LaunchPlan:
    """``plan`` with variables replaced in the words of its ranks; where stubs start them, these are told to do it."""
    words = [word for process in (*plan.processes, *plan.of_others) for word in process.words]
    if not any(_NAME.search(word) for word in words):
        return plan
    inherited = {name: value for name, value in environ.items() if name not in plan.unset}
    processes = tuple(
        process if process.role == "launcher" else _expanded(process, {**inherited, **_values(plan.environment)})
        for process in plan.processes
    )
    return plan._replace(processes=processes, expands=True)


def _values(settings: tuple[EnvSetting, ...]) -> dict[str, str]:
    return {setting.name: setting.value for setting in settings}


def _expanded(process: ProcessPlan, environment: Mapping[str, str]) -> ProcessPlan:
    own = {**environment, **_values(process.environment)}
    return process._replace(argv=tuple(_argument(argument, own) for argument in process.argv))


def _argument(argument: Argument, environment: Mapping[str, str]) -> Argument:
    text = expanded(argument.text, environment)
    return argument if text == argument.text else Argument(text, f"{argument.text}, replaced", argument.ours)
