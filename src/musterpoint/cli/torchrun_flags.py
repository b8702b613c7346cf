"""torchrun's command line: every flag and ``PET_*`` variable of torch 2.13's ``torch.distributed.run``.

Flags are spelled with dashes or underscores and may be abbreviated, as argparse allows there; a flag goes before its
variable. ``--use-env`` is of ``torch.distributed.launch``. :data:`FLAGS` says of each what it is here; the help is
made from it.
"""

from __future__ import annotations

import textwrap
from typing import Literal, Mapping, NamedTuple, NoReturn, Sequence

from musterpoint.base.errors import UsageError, similar
from musterpoint.base.settings import removed_flag
from musterpoint.cli.options import OWN_PREFIX

Fate = Literal["honoured", "compared", "ignored", "refused"]
"""Honoured; or compared with the hosts that the platform names, and used where it names none; or ignored with a note,
since it is settled in another way; or refused."""


class Flag(NamedTuple):
    """One of torchrun's flags.

    ``name``: with dashes; its longest spelling.
    ``short``: its one-letter flag, or empty.
    ``metavar``: what stands for its value; empty: a switch.
    ``fate``: what becomes of it.
    ``help``: what it is here; where it is refused, what to do instead.
    ``variable``: whether torchrun reads ``PET_<NAME>``, too.
    """

    name: str
    short: str
    metavar: str
    fate: Fate
    help: str
    variable: bool = True

    @property
    def dest(self) -> str:
        return self.name.replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        """All flags by which it is given."""
        long = dict.fromkeys((f"--{self.name}", f"--{self.dest}"))
        return (*([f"-{self.short}"] if self.short else []), *long)


FLAGS: tuple[Flag, ...] = (
    Flag("nnodes", "", "N", "compared", "how many hosts there are; a range (MIN:MAX) is refused, since hosts "
         "can't come and go while the job runs"),
    Flag("nproc-per-node", "", "N", "honoured", "ranks on this host: a number, gpu, cpu or auto; torchrun's default is "
         "1 (--slots)"),
    Flag("rdzv-backend", "", "NAME", "honoured", "static: places go by --node-rank; c10d: the host with the endpoint's "
         "address leads, the others' places go by arrival. etcd is refused: nothing needs it here"),
    Flag("rdzv-endpoint", "", "HOST[:PORT]", "compared", "where the hosts meet: the leader, and with c10d the port of "
         "the roll call (--rollcall-leader)"),
    Flag("rdzv-id", "", "ID", "honoured", "the job's name, where the platform gives none: hosts of another job are "
         "refused (--job-name)"),
    Flag("rdzv-conf", "", "KEY=VALUE,...", "honoured", "join_timeout (c10d) or timeout (static) is --rollcall-timeout; "
         "other keys are ignored: the roll call has its own options"),
    Flag("standalone", "", "", "honoured", "this host is the whole job (--nnodes 1)"),
    Flag("max-restarts", "", "N", "honoured", "how often all ranks are started again, on all hosts, after any failure "
         "of a rank (--max-restarts, and --restart-on user unless --muster-restart-on is given)"),
    Flag("monitor-interval", "", "S", "honoured", "passed on to torchrun's agent; an end of a rank is seen at once"),
    Flag("start-method", "", "spawn|fork|forkserver", "honoured", "passed on to torchrun's agent"),
    Flag("event-log-handler", "", "NAME", "honoured", "passed on to torchrun's agent"),
    Flag("role", "", "NAME", "honoured", "passed on to torchrun's agent (ROLE_NAME)"),
    Flag("module", "m", "", "honoured", "PROGRAM is a module"),
    Flag("no-python", "", "", "honoured", "PROGRAM is a command; it needn't be said, since PROGRAM is looked at"),
    Flag("run-path", "", "", "ignored", "the script is started by Python, as without this flag"),
    Flag("log-dir", "", "DIR", "honoured", "one file per rank (--log-dir)"),
    Flag("redirects", "r", "WHAT", "honoured", "with --log-dir, output goes to files; it is shown all the same"),
    Flag("tee", "t", "WHAT", "honoured", "with --log-dir, output goes to files, too; lines that are shown tell their "
         "rank (--log-prefix rank)"),
    Flag("local-ranks-filter", "", "I,...", "honoured", "ranks of each host whose output is shown "
         "(--log-ranks local:I)"),
    Flag("duplicate-stdout-filters", "", "TEXT,...", "refused", "output doesn't go through torchrun: pick lines with "
         "grep from the files of --log-dir"),
    Flag("duplicate-stderr-filters", "", "TEXT,...", "refused", "output doesn't go through torchrun: pick lines with "
         "grep from the files of --log-dir"),
    Flag("node-rank", "", "I", "compared", "this host's place; with c10d it is ignored, as in torchrun"),
    Flag("master-addr", "", "HOST", "compared", "the host with node rank 0, where the hosts meet (--rollcall-leader)"),
    Flag("master-port", "", "PORT", "honoured", "the port that ranks get as MASTER_PORT (--master-port)"),
    Flag("local-addr", "", "ADDRESS", "ignored", "the roll call finds every host's address"),
    Flag("logs-specs", "", "NAME", "refused", "output doesn't go through torchrun: use --log-dir and --tee", False),
    Flag("numa-binding", "", "node|socket|exclusive|core-complex", "honoured", "passed on to torchrun's agent "
         "(--numa-binding)", False),
    Flag("signals-to-handle", "", "NAME,...", "ignored", "a stop reaches the ranks from musterpoint itself, which also "
         "passes on other signals"),
    Flag("shutdown-timeout", "", "S", "honoured", "the time that ranks get between SIGTERM and SIGKILL (--stop-grace)"),
    Flag("virtual-local-rank", "", "", "honoured", "passed on to torchrun's agent: LOCAL_RANK is 0 for all"),
    Flag("use-env", "", "", "honoured", "of torch.distributed.launch: LOCAL_RANK alone tells the local rank, which is "
         "the default here; --muster-local-rank argument adds --local_rank=N, dashed --local-rank=N", False),
)  # fmt: skip
"""In the order of torchrun's own help."""

BY_SPELLING = {spelling: flag for flag in FLAGS for spelling in flag.spellings}


_SHOWN = 80


class Said(NamedTuple):
    """The text of a flag, and the flag or variable that it is from. A switch that is on has the text ``1``."""

    text: str
    source: str

    def wrong(self, expected: str) -> NoReturn:
        """Raises the error for this value."""
        text = self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "..."
        raise UsageError(f"muster torchrun: {self.source}={text!r}: {expected}")


class CommandLine(NamedTuple):
    """``said``: by destination, such as ``nproc_per_node``; ``own``: our flags (``--muster-...``) with their values.

    ``program`` is empty where none is given.
    """

    said: dict[str, Said]
    own: tuple[str, ...]
    program: str
    arguments: tuple[str, ...]


def read_command_line(words: Sequence[str], environ: Mapping[str, str], own_valued: Mapping[str, bool]) -> CommandLine:
    """torchrun's command line and its variables. ``own_valued``: our flags, and whether each takes a value.

    Raises:
        UsageError: a flag is unknown, ambiguous or has no value.
    """
    said: dict[str, Said] = {}
    own: list[str] = []
    rest = list(words)
    while rest:
        word = rest[0]
        if not word.startswith("-") or word == "-":
            break
        rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in own_valued:
            own.append(word)
            if own_valued[name] and not equals:
                own.append(_value(name, rest))
            continue
        flag, value, has_value = _resolved(word, name, equals, value, own_valued)
        if not flag.metavar:
            if has_value:
                raise UsageError(f"muster torchrun: {name} takes no value, and {value!r} is given")
            said[flag.dest] = Said("1", f"--{flag.name}")
        else:
            said[flag.dest] = Said(value if has_value else _value(name, rest), f"--{flag.name}")
    for flag in FLAGS:
        text = environ.get(f"PET_{flag.dest.upper()}", "").strip() if flag.variable else ""
        if text and flag.dest not in said:
            told = Said(text, f"PET_{flag.dest.upper()}")
            if flag.metavar:
                said[flag.dest] = told
            elif not text.lstrip("+-").isdecimal():
                told.wrong("expected 1 or 0, which is all that torchrun reads")
            elif set(text) - set("+-0"):
                said[flag.dest] = told._replace(text="1")
    return CommandLine(said, tuple(own), rest[0] if rest else "", tuple(rest[1:]))


def _resolved(word: str, name: str, equals: str, value: str, own: Mapping[str, bool]) -> tuple[Flag, str, bool]:
    """The flag that ``word`` gives, and its value, if it is in the same word."""
    if not name.startswith("--") and len(word) > 2 and f"{word[:2]}" in BY_SPELLING:  # -t3
        return BY_SPELLING[word[:2]], word[2:].removeprefix("="), True
    flag = BY_SPELLING.get(name)
    if flag is None and name.startswith("--"):
        found = dict.fromkeys(flag for spelling, flag in BY_SPELLING.items() if spelling.startswith(name))
        if len(found) > 1:
            could = ", ".join(f"--{one.name}" for one in found)
            raise UsageError(f"muster torchrun: {name} is ambiguous: it could be {could}")
        flag = next(iter(found), None)
    if flag is None:
        _unknown(name, own)
    return flag, value, bool(equals)


def _unknown(name: str, own: Mapping[str, bool]) -> NoReturn:
    near, gone = similar(name, BY_SPELLING), removed_flag(name.removeprefix(OWN_PREFIX))
    if gone:
        raise UsageError(f"muster torchrun: {name} is gone: {gone}")
    hint = f"did you mean {near}?" if near else "musterpoint's own options are --muster-NAME here, before PROGRAM"
    if f"--muster-{name[2:]}" in own:
        hint = f"it is --muster-{name[2:]} here, before PROGRAM"
    raise UsageError(f"muster torchrun: unknown option {name} ({hint}); see `muster torchrun --help`")


def _value(name: str, rest: list[str]) -> str:
    if not rest or (
        rest[0].startswith("-") and not rest[0].lstrip("-").replace(".", "").isdecimal() and rest[0] != "-"
    ):
        raise UsageError(f"muster torchrun: {name} needs a value")
    return rest.pop(0)


def ignored_line(ignored: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """One warning for all options that are taken and not followed, those of one reason together; none without any."""
    by_reason: dict[str, list[str]] = {}
    for option, reason in ignored:
        by_reason.setdefault(reason, []).append(option)
    told = "; ".join(f"{', '.join(options)} ({reason})" for reason, options in by_reason.items())
    return (f"warning: not followed here: {told}",) if told else ()


def table() -> str:
    """All flags with what they are here, for the help."""
    lines = []
    for flag in FLAGS:
        head = ", ".join((*([f"-{flag.short}"] if flag.short else []), f"--{flag.name}"))
        text = flag.help if flag.fate in ("honoured", "compared") else f"{flag.fate}: {flag.help}"
        lines.append(f"  {head} {flag.metavar}".rstrip())
        lines += _wrapped(text)
    return "\n".join(lines)


def _wrapped(text: str, wide: int = 96) -> list[str]:
    """The lines of an option's text below it."""
    return textwrap.wrap(text, wide, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False)
