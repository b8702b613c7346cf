"""Prints launch plans as text or JSON: every word and variable, with its reason."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.plan import BOOT, LaunchPlan, ProcessPlan
from musterpoint.masking import Masker

_COLUMN = 44
"""The column of the reasons; after a longer word the reason follows directly."""


def to_text(
    plans: Sequence[LaunchPlan], headline: str, notes: Iterable[str], masker: Masker, used: Sequence[EnvSetting] = ()
) -> str:  # fmt: skip
    """A page: the headline, a block per host, the platform's variables here that are ``used`` or not, and the notes."""
    lines = [masker.mask(headline)]
    for plan in plans:
        lines += ["", *_host(plan, masker)]
    if used:
        lines += ["", "the platform's variables on this host", *_variables(used, masker)]
    remarks = list(dict.fromkeys([*notes, *(note for plan in plans for note in plan.notes)]))
    if remarks:
        lines += ["", *(f"note: {masker.mask(remark)}" for remark in remarks)]
    return "\n".join(lines) + "\n"


def to_json(
    plans: Sequence[LaunchPlan], headline: str, notes: Iterable[str], masker: Masker, used: Sequence[EnvSetting] = ()
) -> dict[str, Any]:
    """``{"plan": headline, "notes": […], "variables": […], "hosts": […]}``; hosts have ``processes``, these an argv."""
    return {
        "plan": masker.mask(headline),
        "notes": [masker.mask(note) for note in notes],
        "variables": _settings_json(used, masker),
        "hosts": [_host_json(plan, masker) for plan in plans],
    }


def _host(plan: LaunchPlan, masker: Masker) -> list[str]:
    lines = [f"{plan.host}: {plan.launcher}, {_ranks(plan)}"]
    shown: list[tuple[Any, str]] = []
    for process in plan.processes:
        same = (process.argv, process.cwd) in shown
        shown.append((process.argv, process.cwd))
        lines.append(f"  {process.name} runs the same" if same else f"  {process.name} runs in {process.cwd}")
        if not same:
            lines += [_row(word, reason) for word, reason in _words(process, masker)]
        if process.environment:
            lines += ["  with", *_variables(process.environment, masker)]
    for process in plan.of_others:
        lines.append(f"  {process.name} ({plan.local_ranks - 1}) each run")
        lines += [_row(word, reason) for word, reason in _words(process, masker)]
    if plan.ssh is not None:
        lines.append(f"  for each ssh connection from {' or '.join(name for name, _address in plan.ssh.callers)} runs")
        lines += [_row(word, reason) for word, reason in _words(plan.ssh.process, masker)]
    if plan.daemons and not plan.processes:
        lines.append(f"  {' or '.join(plan.daemons)}, when the leader's mpirun asks for it")
    if plan.environment:
        lines += ["  in the environment it was started with, and", *_variables(plan.environment, masker)]
    if plan.unset:
        lines += ["  without", *(_row(name, "it would mislead the launcher") for name in plan.unset)]
    if plan.cpu_sets:
        rows = ((f"local rank {at}: {cpus.cpus}", cpus.reason) for at, cpus in enumerate(plan.cpu_sets))
        lines += ["  on the processors", *(_row(*row) for row in rows)]
    if plan.foreign or plan.of_others:
        lines += ["  its ranks run in", _row(plan.user_cwd, "the program's working directory")]
        if plan.user_pythonpath:
            lines.append(_row(f"PYTHONPATH={plan.user_pythonpath}", "set by the stub for the program alone"))
    return lines


def _ranks(plan: LaunchPlan) -> str:
    if not plan.local_ranks:
        return "no rank, what runs here serves the others"
    if plan.launcher == "script":
        alone = plan.world_size == 1 or plan.first_rank >= plan.world_size
        return "once" if alone else f"one of {plan.world_size} independent programs, no common world"
    if plan.local_ranks == 1:
        return f"rank {plan.first_rank} of {plan.world_size}" if plan.first_rank < plan.world_size else "once"
    return f"ranks {plan.first_rank} to {plan.first_rank + plan.local_ranks - 1} of {plan.world_size}"


def _words(process: ProcessPlan, masker: Masker) -> list[tuple[str, str]]:
    """The argv as rows; a word without a reason of its own belongs to the one before it."""
    rows: list[tuple[str, str]] = []
    for argument, shown in zip(process.argv, _masked(process.words, masker), strict=True):
        word = "<boot>" if argument.text == BOOT else _program_name(argument.ours) or _quoted(shown)
        if rows and not argument.reason:
            rows[-1] = (f"{rows[-1][0]} {word}", rows[-1][1])
        else:
            rows.append((word, masker.mask(argument.reason)))
    return rows


def _masked(words: Sequence[str], masker: Masker) -> list[str]:
    """``words`` with secrets hidden; the value after a flag is hidden if the flag's name is secret."""
    shown = []
    for earlier, before, word in zip(["", "", *words[:-2]], ["", *words[:-1]], words, strict=False):
        name = before if earlier in _NAME_VALUE or _is_option(before) else ""
        is_value = word != BOOT and not word.startswith("--")
        shown.append(masker.mask_value(name.lstrip("-") if is_value else "", word))
    return shown


def _is_option(word: str) -> bool:
    """Whether ``word`` is a flag whose value may be the next word."""
    return word.startswith("-") and "=" not in word and not any(map(str.isspace, word))


_NAME_VALUE = ("-genv", "-env")
"""Hydra's flags before a variable's name and its value."""


def _variables(settings: Iterable[EnvSetting], masker: Masker) -> list[str]:
    """One row for each variable; a reason that several in a row share is printed once."""
    rows = []
    previous_reason = ""
    for name, value, reason, ours in settings:
        shown = _program_name(ours) or _quoted(masker.mask_value(name, value))
        rows.append(_row(f"{name}={shown}", masker.mask(reason) if reason != previous_reason else ""))
        previous_reason = reason
    return rows


def _row(text: str, reason: str) -> str:
    return f"    {text:<{_COLUMN}}  {reason}".rstrip()


def _program_name(name: str | None) -> str:
    """How a program of musterpoint is shown; empty where ``name`` is empty."""
    return f"<musterpoint's {name}>" if name else ""


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text) if text else "''"


def _host_json(plan: LaunchPlan, masker: Masker) -> dict[str, Any]:
    return {
        "host": plan.host,
        "launcher": plan.launcher,
        "local_ranks": plan.local_ranks,
        "first_rank": plan.first_rank,
        "world_size": plan.world_size,
        "processes": [_process_json(process, masker) for process in plan.processes],
        "environment": _settings_json(plan.environment, masker),
        "unset": list(plan.unset),
        "user_cwd": plan.user_cwd,
        "user_pythonpath": plan.user_pythonpath,
        "notes": [masker.mask(note) for note in plan.notes],
        "daemons": list(plan.daemons),
        "ssh": plan.ssh and {**_process_json(plan.ssh.process, masker), "from": [name for name, _ in plan.ssh.callers]},
        "cpu_sets": [
            {"local_rank": at, "cpus": cpus.cpus, "reason": cpus.reason} for at, cpus in enumerate(plan.cpu_sets)
        ],
        "of_others": [_process_json(process, masker) for process in plan.of_others],
    }


def _process_json(process: ProcessPlan, masker: Masker) -> dict[str, Any]:
    return {
        "role": process.role,
        "name": process.name,
        "rank": process.rank,
        "local_rank": process.local_rank,
        "cwd": process.cwd,
        "argv": _masked(process.words, masker),
        "reasons": _reasons(process, masker),
        "environment": _settings_json(process.environment, masker),
    }


def _reasons(process: ProcessPlan, masker: Masker) -> dict[str, str]:
    """Reasons by word; the key of a word that occurs several times (``--mca``) has the words after it too."""
    words = [argument.text for argument in process.argv if argument.reason]
    rows = _words(process, masker)
    return {row if words.count(word) > 1 else word: reason for word, (row, reason) in zip(words, rows, strict=False)}


def _settings_json(settings: Iterable[EnvSetting], masker: Masker) -> list[dict[str, str]]:
    return [
        {"name": name, "value": masker.mask_value(name, value), "reason": masker.mask(reason)}
        for name, value, reason, _ours in settings
    ]
