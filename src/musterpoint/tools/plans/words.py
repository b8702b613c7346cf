"""Launch plans as JSON, and what their words look like to people: every word and variable, with its reason."""

from __future__ import annotations

import shlex
from typing import Any, Iterable, NamedTuple, Sequence

from musterpoint.base.errors import MusterError
from musterpoint.base.masking import Masker
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.plan import BOOT, LaunchPlan, ProcessPlan


def to_json(
    plans: Sequence[LaunchPlan],
    headline: str,
    notes: Iterable[str],
    masker: Masker,
    used: Sequence[EnvSetting] = (),
    lacks: Sequence[MusterError] = (),
) -> dict[str, Any]:
    """``{"plan": headline, "notes": […], "lacks": […], "variables": […], "hosts": […]}``; hosts have ``processes``,
    these an argv.
    """
    return {
        "plan": masker.mask(headline),
        "notes": [masker.mask(note) for note in notes],
        "lacks": [{"code": error.code, "reason": masker.mask(str(error))} for error in lacks],
        "variables": _settings_json(used, masker),
        "hosts": [_host_json(plan, masker) for plan in plans],
    }


class Words(NamedTuple):
    """One or more words of an argv, quoted for a shell, with the ``reason`` that they share."""

    words: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        return " ".join(self.words)


def words_of(process: ProcessPlan, masker: Masker) -> list[Words]:
    """The argv; a word without a reason of its own belongs to the one before it."""
    rows: list[Words] = []
    for argument, shown in zip(process.argv, masked(process.words, masker), strict=True):
        word = BOOT_SHOWN if argument.text == BOOT else program_name(argument.ours) or quoted(shown)
        if rows and not argument.reason:
            rows[-1] = rows[-1]._replace(words=(*rows[-1].words, word))
        else:
            rows.append(Words((word,), masker.mask(argument.reason)))
    return rows


BOOT_SHOWN = "<boot>"
"""Stands for the text that starts the rank stub."""


def masked(words: Sequence[str], masker: Masker) -> list[str]:
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


def program_name(name: str | None) -> str:
    """How a program of musterpoint is shown; empty where ``name`` is empty."""
    return f"<musterpoint's {name}>" if name else ""


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
        "argv": masked(process.words, masker),
        "reasons": _reasons(process, masker),
        "environment": _settings_json(process.environment, masker),
    }


def _reasons(process: ProcessPlan, masker: Masker) -> dict[str, str]:
    """Reasons by word; the key of a word that occurs several times (``--mca``) has the words after it too."""
    words = [argument.text for argument in process.argv if argument.reason]
    rows = words_of(process, masker)
    return {row.text if words.count(word) > 1 else word: row.reason for word, row in zip(words, rows, strict=False)}


def _settings_json(settings: Iterable[EnvSetting], masker: Masker) -> list[dict[str, str]]:
    return [
        {"name": name, "value": masker.mask_value(name, value), "reason": masker.mask(reason)}
        for name, value, reason, _ours in settings
    ]


def quoted(text: str) -> str:
    """``text``, quoted for a shell, as it can be copied: control characters as bash and zsh read them (``$'...'``)."""
    if text.isprintable():
        return shlex.quote(text) if text else "''"
    marks = (mark if mark.isprintable() and mark not in "'\\" else _in_shell(mark) for mark in text)
    return f"$'{''.join(marks)}'"


def _in_shell(mark: str) -> str:
    if mark in "'\\":
        return "\\" + mark
    lost = "surrogateescape" if "\udc80" <= mark <= "\udcff" else "replace"  # stands for a byte that is no UTF-8
    return "".join(f"\\x{byte:02x}" for byte in mark.encode("utf-8", lost))
