"""The words of a plan, as JSON and for people; and the page of ``muster plan``.

It has the job in two sentences, the first host whole, and of others what differs.

A page is made of blocks of rows; :mod:`musterpoint.tools.plans.drawing` draws it. Secrets are hidden here.
"""

from __future__ import annotations

import shlex
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

from musterpoint.base.errors import MusterError
from musterpoint.base.masking import Masker
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.model import Ends
from musterpoint.core.job.platform import EXPECTED
from musterpoint.core.launch.launch_plan import BOOT, LaunchPlan, ProcessPlan
from musterpoint.core.launch.launcher import MISLEADING
from musterpoint.core.launch.launchers import find_launcher


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


MOST_OTHERS = 6
"""Hosts beside the first whose differences are shown without ``--all``."""
_LONGEST_LIST = 4
PROGRAM = "the program"
STUBBED = "started by a rank stub: --all shows its words"
READ, NOT_NEEDED = "read", "not needed: others say enough"
KEPT, REPLACED = "ranks get it as it is", "ranks get a value of their own, above"
BY_LAUNCHER, REMOVED = (
    "the launcher gives ranks a value of their own",
    "taken away, since it would mislead the launcher or ranks",
)
"""Fates of a platform's variable."""


class PlanRow(NamedTuple):
    """Something that the plan sets, and why.

    name: by which it is compared on other hosts: a flag, or a variable.
    text: what is shown.
    reason: why.
    folded: whether it is only counted, unless everything is asked for.
    """

    name: str
    text: str
    reason: str
    folded: bool = False


class Block(NamedTuple):
    """Rows with a title.

    key: by which it is compared on other hosts.
    title: what it is.
    command: what a person may copy, a line each; empty: nothing is to be run.
    rows: its rows.
    """

    key: str
    title: str
    command: tuple[tuple[str, ...], ...] = ()
    rows: tuple[PlanRow, ...] = ()


class HostPart(NamedTuple):
    """A host: its ``title``, its ``blocks``, and the host ``like`` it of which these are the differences (or none)."""

    title: str
    blocks: tuple[Block, ...]
    like: str = ""


class Subject(NamedTuple):
    """The job's name, its ``program``, its ``launcher``, and the ``reason`` for that one."""

    job: str
    program: str
    launcher: str
    reason: str


class Page(NamedTuple):
    """All of it: ``sentences`` about the job, ``hosts``, hosts ``left_out``, the ``last`` block, and remarks."""

    sentences: tuple[str, ...]
    hosts: tuple[HostPart, ...]
    left_out: str
    last: Block | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def page_of(
    subject: Subject,
    plans: Sequence[LaunchPlan],
    shown: Sequence[LaunchPlan],
    notes: Iterable[str],
    masker: Masker,
    used: Sequence[EnvSetting] = (),
    everything: bool = False,
) -> Page:
    """The page of a job with these ``plans``, of which those ``shown`` are on it."""
    hosts = _hosts(shown, masker, everything)
    remarks = [masker.mask(each) for each in dict.fromkeys([*notes, *(note for plan in shown for note in plan.notes)])]
    return Page(
        sentences(subject, plans, masker),
        hosts,
        _left_out(shown, len(hosts)),
        _used(used, shown[0].host, masker, everything) if used else None,
        tuple(each for each in remarks if not each.startswith("warning: ")),
        tuple(each.removeprefix("warning: ") for each in remarks if each.startswith("warning: ")),
    )


def sentences(subject: Subject, plans: Sequence[LaunchPlan], masker: Masker) -> tuple[str, ...]:
    """The job in two sentences: what runs where, and by which launcher, why. With roles: one for each."""
    if plans[0].gates:
        counted = f"{len(plans)} host{'s' if len(plans) > 1 else ''}"
        return masker.mask(f"{subject.job}: several programs on {counted}."), *_roles(plans)
    what = f"{subject.job}: {quoted(subject.program)}"
    own = [plan for plan in plans if plan.local_ranks and plan.launcher == subject.launcher]
    rest = [plan for plan in plans if plan not in own]
    if all(plan.independent for plan in plans):
        on = plans[0].host if len(plans) == 1 else f"each of {len(plans)} hosts"
        says = f"{what} runs once on {on}"
        says += "." if len(plans) == 1 else ": independent programs, no common world."
    else:
        ranks = sum(plan.local_ranks for plan in own)
        each = [plan.local_ranks for plan in own]
        where = own[0].host if len(own) == 1 else f"{len(own)} hosts"
        if len(set(each)) > 1:
            where += f", {_listed(map(str, each))} of them"
        elif len(own) > 1:
            where += f", {each[0]} on each"
        says = f"{what} runs as {ranks} rank{'s' if ranks != 1 else ''} on {where}."
        if rest:
            says = f"{says[:-1]}; {_listed(plan.host for plan in rest)} {_beside(rest, ranks)}."
    return masker.mask(says), masker.mask(f"Launcher {subject.launcher}: {subject.reason}.")


def _roles(plans: Sequence[LaunchPlan]) -> Iterator[str]:
    """Each role: where it is, when it starts, when it is ready, and whose end ends the job."""
    gates = {gate.role: (gate, [p for p in plans if gate in p.gates]) for plan in plans for gate in plan.gates}
    for name, (gate, own) in gates.items():
        first = own[0]
        beside = "" if gate == first.gates[0] else f"beside {first.gates[0].role}, "
        ranks = sum(plan.local_ranks for plan in own)
        what = "one process on each host" if beside else f"{first.launcher}, {ranks} rank{'s' if ranks != 1 else ''}"
        parts = [f"{name} on {_listed(plan.host for plan in own)}: {beside}{what}"]
        parts += [f"starts after {_listed(gate.after)}"] if gate.after else []
        parts += [f"is ready at {gate.ready}"] if str(gate.ready) else []
        yield f"{'; '.join((*parts, ENDS[gate.ends]))}."


ENDS: dict[Ends, str] = {
    "job": "its end is the job's",
    "with": "is told to end when the job's own roles are through",
    "never": "is told to end when the job's own roles are through, and may end before",
}


def _beside(rest: Sequence[LaunchPlan], ranks: int) -> str:
    if rest[0].local_ranks:
        return "runs it alone, outside the distribution" if len(rest) == 1 else "run it alone, outside the distribution"
    return f"serve{'s' if len(rest) == 1 else ''} {'it' if ranks == 1 else 'them'}"


def _listed(texts: Iterable[str]) -> str:
    listed = list(texts)
    if len(listed) > _LONGEST_LIST + 1:
        listed = [*listed[:_LONGEST_LIST], f"{len(listed) - _LONGEST_LIST} more"]
    return " and ".join(filter(None, (", ".join(listed[:-1]), listed[-1])))


class _Shown(NamedTuple):
    host: str
    blocks: tuple[Block, ...]


def _hosts(plans: Sequence[LaunchPlan], masker: Masker, everything: bool) -> tuple[HostPart, ...]:
    """The first host of each launcher whole; of the others what differs from the first with the same processes."""
    alike: dict[tuple[str, ...], _Shown] = {}
    parts, others = [], 0
    for plan in plans:
        role = f"{plan.gates[0].role} on " if plan.gates else ""
        title = masker.mask(f"{role}{plan.host}: {plan.launcher}, {ranks_of(plan)}")
        own = _Shown(plan.host, tuple(blocks_of(plan, masker, everything)))
        of_launcher = (plan.launcher, *(gate.role for gate in plan.gates[:1]))
        kind = (*of_launcher, *(block.key for block in own.blocks if block.command))
        first = alike.get(kind) or alike.get(of_launcher)
        alike.setdefault(kind, own)
        alike.setdefault(of_launcher, own)
        if first is None or everything:
            parts.append(HostPart(title, own.blocks))
            continue
        others += 1
        if others <= MOST_OTHERS:
            parts.append(HostPart(title, differences(own.blocks, first.blocks), first.host))
    return tuple(parts)


def _left_out(plans: Sequence[LaunchPlan], shown: int) -> str:
    more = len(plans) - shown
    if not more:
        return ""
    return (
        f"{more} more host{'s' if more > 1 else ''}, up to {plans[-1].host}: --host NAME shows one, --all all of them"
    )


def ranks_of(plan: LaunchPlan) -> str:
    """Which ranks the host has."""
    if not plan.local_ranks:
        return "no rank, what runs here serves the others"
    if plan.independent:
        alone = plan.world_size == 1 or plan.first_rank >= plan.world_size
        return "once" if alone else f"one of {plan.world_size} independent programs, no common world"
    if plan.local_ranks == 1:
        return f"rank {plan.first_rank} of {plan.world_size}" if plan.first_rank < plan.world_size else "once"
    return f"ranks {plan.first_rank} to {plan.first_rank + plan.local_ranks - 1} of {plan.world_size}"


def blocks_of(plan: LaunchPlan, masker: Masker, everything: bool = False) -> Iterator[Block]:
    """What is on a host: its processes, their variables, and what is taken away."""
    groups: dict[object, list[ProcessPlan]] = {}
    for process in plan.processes:
        groups.setdefault((process.role, process.argv, process.cwd), []).append(process)
    for alike in groups.values():
        yield _of_processes(alike, plan, masker, everything)
    for process in plan.of_others:
        block = _of_processes([process], plan, masker, everything)
        yield block._replace(title=f"{process.name} ({plan.local_ranks - 1}) each run")
    if plan.ssh is not None:
        block = _of_processes([plan.ssh.process], plan, masker, everything)
        callers = _listed(name for name, _address in plan.ssh.callers)
        yield block._replace(title=f"sshd, for each ssh connection from {callers}")
    if plan.daemons and not plan.processes:
        title = f"{' or '.join(plan.daemons)}, when the leader's mpirun asks for it; its ranks in {plan.user_cwd}"
        yield Block("daemons", title)
    if plan.cpu_sets:
        rows = [
            PlanRow(f"cpus {at}", f"local rank {at}: {cpus.cpus}", cpus.reason) for at, cpus in enumerate(plan.cpu_sets)
        ]
        yield Block("cpus", "on the processors", (), tuple(rows))
    rows = [row._replace(folded=row.folded and not everything) for row in _variables(plan.environment, masker)]
    stubbed = plan.user_pythonpath and (plan.foreign or plan.of_others)
    if stubbed:
        without = "" if plan.of_others else f"; {_starts(plan)} without: a queue.py beside the script would break it"
        value = quoted(masker.mask_value("PYTHONPATH", plan.user_pythonpath))
        rows.append(PlanRow("PYTHONPATH", f"PYTHONPATH={value}", f"for the ranks alone{without}"))
    if rows:
        yield Block("variables", "variables, beside those that the host was started with", (), tuple(rows))
    given = {setting.name for process in plan.processes for setting in process.environment}
    unset = [name for name in plan.unset if name not in given and (name != "PYTHONPATH" or not stubbed)]
    if unset:
        rows = [PlanRow(name, name, _why_hidden(plan, name)) for name in unset]
        yield Block("taken away", "variables that are taken away", (), tuple(rows))


def _why_hidden(plan: LaunchPlan, name: str) -> str:
    return next((hidden.reason for hidden in find_launcher(plan.launcher).hides if any(hidden.of([name]))), MISLEADING)


def _starts(plan: LaunchPlan) -> str:
    launchers = [process.name for process in plan.processes if process.role == "launcher"]
    return f"{' and '.join(launchers or plan.daemons)} start{'s' if len(launchers or plan.daemons) == 1 else ''}"


def _of_processes(alike: list[ProcessPlan], plan: LaunchPlan, masker: Masker, everything: bool) -> Block:
    """Processes that run the same; their variables are in one row each."""
    process = alike[0]
    name = process.name if len(alike) == 1 else f"ranks {process.rank} to {alike[-1].rank}"
    stubbed = BOOT in process.words
    words = words_of(process, masker)
    directory = plan.user_cwd if stubbed else process.cwd
    line = [[f"cd {quoted(directory)}"], *(list(each.words) for each in _without_stub(words))]
    rows = [_row_of(each) for each in (words if everything else _without_stub(words))]
    name = PROGRAM if plan.independent else name
    key = process.name.rstrip("0123456789 ")
    title = f"{name}, {'its ranks ' if stubbed else ''}in {directory}"
    rows = [] if [row.reason for row in rows] == [PROGRAM] else rows
    return Block(key, title, tuple(map(tuple, line)), (*rows, *_variables_of(alike, masker)))


def _stub_words(words: Sequence[Words]) -> list[range]:
    """The places of the words of each rank stub: Python with its flags, what starts the stub, and the ``--`` behind."""
    found = []
    for at, each in enumerate(words):
        if BOOT_SHOWN in each.words:
            end = next((place for place in range(at, len(words)) if words[place].words[0] == "--"), at)
            found.append(range(max(at - 3, 0), end + 1))
    return found


def _without_stub(words: Sequence[Words]) -> list[Words]:
    """``words`` without those of the rank stubs; the program behind one says that it is started by one."""
    stubs = _stub_words(words)
    ends = {stub.stop for stub in stubs}
    return [
        each._replace(reason=f"{each.reason}, {STUBBED}") if at in ends else each
        for at, each in enumerate(words)
        if not any(at in stub for stub in stubs)
    ]


def _row_of(words: Words) -> PlanRow:
    name = words.words[0].partition("=")[0] if words.words[0].startswith("-") else words.reason
    if words.words[0] in ("--mca", "-x", "-genv", "-env"):
        name = " ".join(words.words[:2])
    return PlanRow(name, words.text, words.reason)


def _variables(settings: Iterable[EnvSetting], masker: Masker) -> list[PlanRow]:
    rows = []
    for name, value, reason, ours in settings:
        shown = program_name(ours) or quoted(masker.mask_value(name, value))
        rows.append(PlanRow(name, f"{name}={shown}", masker.mask(reason), reason in EXPECTED))
    return rows


def _variables_of(alike: list[ProcessPlan], masker: Masker) -> list[PlanRow]:
    """The variables of processes that run the same, each in one row with all its values."""
    found: dict[str, list[PlanRow]] = {}
    for process in alike:
        for row in _variables(process.environment, masker):
            found.setdefault(row.name, []).append(row)
    rows = []
    for each in found.values():
        values = list(dict.fromkeys(row.text.partition("=")[2] for row in each))
        first, last = values[0], values[-1]
        if len(values) > 1:
            counted = first.isdecimal() and values == [str(int(first) + at) for at in range(len(values))]
            text = f"{each[0].name}={first} to {last}" if counted else f"{each[0].name}={_listed(values)}"
            rows.append(each[0]._replace(text=text))
        else:
            rows.append(each[0])
    return rows


def differences(blocks: Sequence[Block], whole: Sequence[Block]) -> tuple[Block, ...]:
    """Of a host's ``blocks`` what another host, shown ``whole``, doesn't have; rows that it has alone are named."""
    known = {block.key: block for block in whole}
    found = []
    for block in blocks:
        first = known.get(block.key)
        if first is None:
            found.append(block)
            continue
        names, before = {row.name for row in block.rows}, set(first.rows)
        rows = [row for row in block.rows if row not in before]
        gone = [row.text for row in first.rows if row.name not in names and not row.folded]
        if gone:
            rows.append(PlanRow("", f"not here: {', '.join(gone)}", ""))
        if rows:
            found.append(Block(block.key, "" if block.title == first.title else block.title, (), tuple(rows)))
    here = {block.key for block in blocks}
    missing = [block.title.partition(", ")[0] for block in whole if block.key not in here and block.command]
    if missing:
        found.insert(0, Block("missing", f"not started here: {_listed(missing)}"))
    return tuple(found)


def _used(used: Sequence[EnvSetting], host: str, masker: Masker, everything: bool) -> Block:
    """The platform's variables that were found: one line with the names, or each with what becomes of it.

    The line says more only of those that ranks don't get as they are.
    """
    title = f"variables of the platform that were found on {host}"
    if everything:
        return Block("used", title, (), tuple(row._replace(folded=False) for row in _variables(used, masker)))
    fates: dict[str, list[str]] = {}
    for each in used:
        for fate in {*each.reason.split("; ")} - {READ, NOT_NEEDED, KEPT}:
            fates.setdefault(fate, []).append(each.name)
    named = "".join(f"; {_listed(names)}: {fate}" for fate, names in fates.items())
    return Block("used", f"{title}: {_listed(each.name for each in used)}{named}; --all shows more")
