"""Command lines of launchers that add options to torchrun's: these become ours or are named, torchrun's stay.

Such a launcher has a table of :class:`Added` options; a module of its own says what each of them becomes.
"""

from __future__ import annotations

import sys
from typing import Callable, Literal, Mapping, NamedTuple, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.cli import torchrun
from musterpoint.cli.errors import guarded
from musterpoint.cli.options import Parser
from musterpoint.cli.torchrun_flags import BY_SPELLING, wrapped
from musterpoint.core import nested


class Added(NamedTuple):
    """An option that torchrun hasn't.

    ``name``: with dashes, without the first two.
    ``metavar``: what stands for its value; empty: a switch.
    ``fate``: whether it is followed, ignored with a note, or refused.
    ``help``: what it is here; where it isn't followed, why, or what to do instead.
    ``others``: names that stand for it too.
    """

    name: str
    metavar: str
    fate: Literal["honoured", "ignored", "refused"]
    help: str
    others: tuple[str, ...] = ()


class Words(NamedTuple):
    """A command line: the added options by name, and all other words, of which the program's begin at ``program``."""

    said: dict[str, str]
    rest: tuple[str, ...]
    program: int


class Translation(NamedTuple):
    """A command line as ``muster torchrun``'s: its words, sentences for the log, and what is ignored, with reasons."""

    words: list[str]
    notes: list[str]
    ignored: list[tuple[str, str]]


class Command(NamedTuple):
    """Such a launcher: its options, and what they become.

    ``translate``: the words of ``muster torchrun`` for a command line, sentences for the log, and what of it is
    ignored, with reasons.
    ``about``, ``examples``: the text of its help before the table.
    """

    name: str
    added: tuple[Added, ...]
    about: str
    translate: Callable[[Words], Translation]
    examples: str


OPTIONS = "options:\n{}'s own, each with what it is here (--a-b may be spelled --a_b):"


def main(command: Command, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs ``muster NAME`` with ``argv``; the job's exit code."""
    return guarded(lambda: _run(command, argv, environ), lambda failure: nested.report(failure, environ))


def _run(command: Command, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    try:
        words = split(command, argv)
        if any(word in ("-h", "--help") for word in words.rest[: words.program]):
            print(help_of(command), end="")
            sys.exit(0)
        translated, notes, ignored = command.translate(words)
        for added in command.added:
            if added.name in words.said and added.fate == "refused":
                raise UsageError(f"muster {command.name}: --{added.name} is not followed: {added.help}")
            if added.name in words.said and added.fate == "ignored":
                ignored.append((f"--{added.name}", added.help))
        return torchrun.run(translated, environ, notes, ignored)
    except UsageError as error:
        raise UsageError(str(error).replace("muster torchrun", f"muster {command.name}")) from None


def split(command: Command, argv: Sequence[str]) -> Words:
    """The command line's added options, and the other words in their order.

    Raises:
        UsageError: an added option has no value, or a switch has one.
    """
    spellings = {name: added for added in command.added for name in (added.name, *added.others)}
    own = torchrun.own_parser()
    valued = {flag: own.takes_value(flag) is not False for flag in own.flags}
    said: dict[str, str] = {}
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            words.insert(0, word)
            break
        name, equals, value = word.partition("=")
        added = spellings.get(name.removeprefix("--").replace("_", "-")) if name.startswith("--") else None
        if added is None:
            rest.append(word)
            if not equals and words and _takes_value(word, valued):
                rest.append(words.pop(0))
            continue
        if not added.metavar and equals:
            raise UsageError(f"muster {command.name}: {name} takes no value, and {value!r} is given")
        if added.metavar and not equals:
            if not words:
                raise UsageError(f"muster {command.name}: {name} needs a value")
            value = words.pop(0)
        said[added.name] = value if added.metavar else "1"
    return Words(said, (*rest, *words), len(rest))


def _takes_value(word: str, own: Mapping[str, bool]) -> bool:
    """Whether the next word is the value of the option ``word`` of torchrun's or ours; options may be abbreviated."""
    if word in own:
        return own[word]
    if not word.startswith("--"):
        return word in BY_SPELLING and bool(BY_SPELLING[word].metavar)
    found = {flag for spelling, flag in BY_SPELLING.items() if spelling.startswith(word)}
    exact = BY_SPELLING.get(word)
    return bool(exact.metavar if exact else len(found) == 1 and next(iter(found)).metavar)


def number(command: str, name: str, text: str) -> str:
    """``text``, which must be a number of seconds.

    Raises:
        UsageError: it is none.
    """
    try:
        if float(text) >= 0:
            return text
    except ValueError:
        pass
    raise UsageError(f"muster {command}: --{name}={text!r}: expected a number of seconds")


def help_of(command: Command) -> str:
    """The text of ``muster NAME --help``."""
    lines = []
    for added in command.added:
        text = added.help if added.fate == "honoured" else f"{added.fate}: {added.help}"
        lines += [f"  --{added.name} {added.metavar}".rstrip(), *wrapped(text)]
    table = "\n".join(lines)
    return f"{command.about}\n{command.examples}\n{OPTIONS.format(command.name)}\n{table}\n"


def parsers(command: Command) -> tuple[Parser, ...]:
    """The options, for completion: those that are followed, torchrun's, and ours behind a prefix."""
    parser = Parser(f"muster {command.name}", "")
    for added in command.added:
        if added.fate == "honoured":
            value: dict[str, str] = {"metavar": added.metavar} if added.metavar else {"action": "store_true"}
            parser.add_argument(f"--{added.name}", help=added.help.replace("%", "%%"), **value)  # type: ignore[arg-type]
    return (parser, *torchrun.parsers())
