"""Launch plans for people and for programs: every word and variable, with its reason."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence

from musterpoint.launch.plan import EnvSetting, LaunchPlan, ProcessPlan
from musterpoint.launch.stub_command import BOOT

Mask = Callable[[str, str], str]
"""A variable's name and value in, what may be shown of the value out."""

_COLUMN = 44
"""Where reasons start; longer words get a line of their own length."""


def to_text(plans: Sequence[LaunchPlan], headline: str, notes: Iterable[str], mask: Mask) -> str:
    """A page: the headline, then a block per host, then the notes."""
    lines = [headline]
    for plan in plans:
        lines += ["", *_host(plan, mask)]
    remarks = list(dict.fromkeys([*notes, *(note for plan in plans for note in plan.notes)]))
    if remarks:
        lines += ["", *(f"note: {remark}" for remark in remarks)]
    return "\n".join(lines) + "\n"


def to_json(plans: Sequence[LaunchPlan], headline: str, notes: Iterable[str], mask: Mask) -> dict[str, Any]:
    """``{"plan": headline, "notes": […], "hosts": […]}``; a host has ``processes``, each with its full ``argv``."""
    return {"plan": headline, "notes": list(notes), "hosts": [_host_json(plan, mask) for plan in plans]}


def _host(plan: LaunchPlan, mask: Mask) -> list[str]:
    lines = [f"{plan.host}: {plan.launcher}, {_ranks(plan)}"]
    first = plan.processes[0] if plan.processes else None
    for process in plan.processes:
        same = process is not first and first is not None and process.argv == first.argv and process.cwd == first.cwd
        lines.append(f"  {process.name} runs the same" if same else f"  {process.name} runs in {process.cwd}")
        if not same:
            lines += [_row(word, reason) for word, reason in _words(process)]
        if process.environment:
            lines += ["  with", *_variables(process.environment, mask)]
    if plan.environment:
        lines += ["  in the environment it was started with, and", *_variables(plan.environment, mask)]
    if plan.unset:
        lines += ["  without", *(_row(name, "it would mislead the launcher") for name in plan.unset)]
    if plan.processes and plan.processes[0].role == "launcher":
        lines += ["  its ranks run in", _row(plan.user_cwd, "the program's working directory")]
        if plan.user_pythonpath:
            lines.append(_row(f"PYTHONPATH={plan.user_pythonpath}", "set by the stub for the program alone"))
    return lines


def _ranks(plan: LaunchPlan) -> str:
    if plan.local_ranks == 1:
        return f"rank {plan.first_rank} of {plan.world_size}" if plan.first_rank < plan.world_size else "once"
    return f"ranks {plan.first_rank} to {plan.first_rank + plan.local_ranks - 1} of {plan.world_size}"


def _words(process: ProcessPlan) -> list[tuple[str, str]]:
    """The argv as rows; a word without a reason of its own belongs to the one before it."""
    rows: list[tuple[str, str]] = []
    for argument in process.argv:
        word = "<boot>" if argument.text == BOOT else _quoted(argument.text)
        if rows and not argument.reason:
            rows[-1] = (f"{rows[-1][0]} {word}", rows[-1][1])
        else:
            rows.append((word, argument.reason))
    return rows


def _variables(settings: Iterable[EnvSetting], mask: Mask) -> list[str]:
    return [_row(f"{name}={_quoted(mask(name, value))}", reason) for name, value, reason in settings]


def _row(text: str, reason: str) -> str:
    return f"    {text:<{_COLUMN}}  {reason}".rstrip()


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text) if text else "''"


def _host_json(plan: LaunchPlan, mask: Mask) -> dict[str, Any]:
    return {
        "host": plan.host,
        "launcher": plan.launcher,
        "local_ranks": plan.local_ranks,
        "first_rank": plan.first_rank,
        "world_size": plan.world_size,
        "processes": [_process_json(process, mask) for process in plan.processes],
        "environment": _settings_json(plan.environment, mask),
        "unset": list(plan.unset),
        "user_cwd": plan.user_cwd,
        "user_pythonpath": plan.user_pythonpath,
        "notes": list(plan.notes),
    }


def _process_json(process: ProcessPlan, mask: Mask) -> dict[str, Any]:
    return {
        "role": process.role,
        "name": process.name,
        "rank": process.rank,
        "local_rank": process.local_rank,
        "cwd": process.cwd,
        "argv": process.words,
        "reasons": {argument.text: argument.reason for argument in process.argv if argument.reason},
        "environment": _settings_json(process.environment, mask),
    }


def _settings_json(settings: Iterable[EnvSetting], mask: Mask) -> list[dict[str, str]]:
    return [{"name": name, "value": mask(name, value), "reason": reason} for name, value, reason in settings]
