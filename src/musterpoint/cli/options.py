"""The command line, derived from :data:`musterpoint.base.settings.OPTIONS`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from typing import Any, Callable, Collection, Mapping, NamedTuple, NoReturn, Sequence

from musterpoint.base import spellings
from musterpoint.base.errors import UsageError, chosen, similar
from musterpoint.base.plugins import Named
from musterpoint.base.settings import OPTIONS, REMOVED, TO_MEET, Option, removed_flag, removed_options
from musterpoint.core.job import platforms
from musterpoint.core.launch import launchers
from musterpoint.core.launch.launchers import readers
from musterpoint.core.runtime import Request

SCRIPT_FLAG = "--train-script"
OWN_PREFIX = "--muster-"
"""The prefix of our flags where all other flags are the program's."""


class Command(NamedTuple):
    """A command line, split into our own flags (``head``, for a :class:`Parser`) and the program with its arguments."""

    head: tuple[str, ...]
    program: str
    arguments: tuple[str, ...]
    module: bool = False


COMMON = ("launcher", "slots", "platform", "requirements", "log_prefix", "stall_timeout", "max_restarts", "stop_grace")
"""The options of the job, by field, that `--help` shows; `--help all` shows the others, too."""
TOPICS: Mapping[str, tuple[str, ...]] = {
    "the hosts, and how they meet": (
        "rollcall_timeout",
        "rollcall_check",
        "silence_timeout",
        "rollcall_port",
        "rollcall_leader",
        "nnodes",
        "node_rank",
        "master_port",
        "hosts_file",
        "secret",
        "host_order",
        "topology",
        "ssh",
        "job_name",
        "check",
    ),
    "several programs in one job": ("job_file", "more_roles", "ready_timeout", "group", "outside"),
    "failures, stops and stalls": (
        "on_failure",
        "restart_on",
        "rejoin_timeout",
        "stop_signal",
        "stop_exit_code",
        "pid1_watch",
        "on_stall",
    ),
    "data in, checkpoints out": (
        "channel",
        "checkpoints",
        "checkpoint_restore",
        "checkpoint_keep",
        "checkpoint_complete",
        "upload",
    ),
    "the program and its packages": ("python", "installer", "args", "local_rank", "cuda_compat"),
    "its output": ("log_ranks", "log_dir"),
}
"""Titles of groups in `--help all`, and the options in them; those of one launcher follow under its name."""


_MORE_OF_A_DEFAULT = re.compile(r"\[([^];]+);[^]]*\]$")
"""In a help text, the default with its further cases; a page without every option has the first of them."""


class _Help(argparse.Action):
    """``--help``: the page with the common options; ``--help all``: with every option."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        parser.print_page(everything=values == "all")
        parser.exit()


class _Page(argparse.RawDescriptionHelpFormatter):
    """Help texts without a line end within the name of an option."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """argparse without abbreviated flags; an error is a UsageError: one sentence, code 64.

    Its help has the examples first, then the options.
    """

    def __init__(self, prog: str, description: str, examples: str = "", **more: Any) -> None:
        self._rare: set[str] = set()
        helps = more.pop("add_help", True)
        super().__init__(
            prog=prog,
            description=f"{description}\n{examples.rstrip()}" if examples else description,
            formatter_class=_Page,
            allow_abbrev=False,
            add_help=False,
            **more,
        )
        if helps:
            self.add_argument(
                "-h",
                "--help",
                action=_Help,
                nargs="?",
                metavar="all",
                default=argparse.SUPPRESS,
                help="this page; --help all: every option",
            )

    def print_page(self, everything: bool) -> None:
        """Prints the help, without the options that few need unless ``everything`` is to be shown."""
        rare = set() if everything else self._rare
        kept = [(group, group._group_actions) for group in self._action_groups]
        helps = {action: action.help for action in self._actions}
        try:
            for group, actions in kept:
                group._group_actions = [action for action in actions if action.dest not in rare]
            if not everything:
                for action in self._actions:
                    action.help = _MORE_OF_A_DEFAULT.sub(r"[\1]", action.help or "")
            text = self.format_help()
        finally:
            for group, actions in kept:
                group._group_actions = actions
            for action, text_of_it in helps.items():
                action.help = text_of_it
        more = f"\n{len(rare)} more options of the job: {self.prog} --help all\n" if rare else ""
        print(text + more, end="", flush=True)

    def hide(self, field: str) -> None:
        """The option is for ``--help all`` only."""
        self._rare.add(field)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see `{self.prog} --help`")

    def unknown(self, word: str, hint: str = "") -> NoReturn:
        """Raises the error for an unknown flag; it names the most similar flag, else ``hint``."""
        flag = word.partition("=")[0]
        ours = f"--{flag.removeprefix(OWN_PREFIX)}"  # as flags are spelled where all others are the program's
        if gone := removed_flag(flag.removeprefix(OWN_PREFIX)):
            self.error(f"{flag} is gone: {gone}")
        known = self._option_string_actions
        if "--hosts" in (flag, ours) and "--hosts" not in known:
            self.error(
                f"unknown option {flag} (it is of muster local and muster plan, which shows variables with --all; "
                "--nnodes counts hosts that are there already)"
            )
        if flag in spellings.OF_LOCAL and "--launcher" in known:
            self.error(f"unknown option {flag} (it is of muster local)")
        near = ours if ours in known else spellings.meant(flag, known) or similar(flag, (SCRIPT_FLAG, *known))
        hint = f"did you mean {near}?" if near else hint
        self.error(f"unknown option {flag}" + (f" ({hint})" if hint else ""))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        asked, rest = self.parse_known_args(self._joined(sys.argv[1:] if args is None else args), namespace)
        if rest:
            flags = [word for word in rest if word.startswith("-")]
            self.unknown(flags[0]) if flags else self.error(f"unexpected argument {rest[0]!r}")
        return asked

    def _joined(self, words: Sequence[str]) -> list[str]:
        """``words`` with each value that begins with a dash in one word with its flag, as argparse needs that."""
        joined: list[str] = []
        for word in words:
            before = joined[-1] if joined else ""
            if word.startswith("-") and self.takes_value(before) and word.partition("=")[0] not in self.flags:
                joined[-1] = f"{before}={word}"
            else:
                joined.append(word)
        return joined

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags of this parser."""
        return tuple(self._option_string_actions)

    @property
    def taken(self) -> dict[str, bool]:
        """Every long flag, and whether it takes a value; without ``--help``."""
        return {flag: bool(self.takes_value(flag)) for flag in self.flags if flag[:2] == "--" and flag != "--help"}

    @property
    def actions(self) -> tuple[argparse.Action, ...]:
        """What its flags and arguments stand for, in the order of the help."""
        return tuple(self._actions)

    def field_of(self, flag: str) -> str:
        """The option that ``flag`` stands for; empty: no flag of this parser."""
        action = self._option_string_actions.get(flag)
        return "" if action is None else action.dest

    def takes_value(self, flag: str) -> bool | None:
        """Whether ``flag`` takes the next word as its value; None: no flag of this parser."""
        action = self._option_string_actions.get(flag)
        return None if action is None else action.nargs != 0


def add_options(parser: Parser, leave_out: Collection[str] = (), prefix: str = "--") -> None:
    """Adds a flag for every option whose field isn't among ``leave_out``; values are stored under the field."""
    about = "each is also a MUSTER_* variable, such as MUSTER_LAUNCHER"
    groups = {"common options of the job": parser.add_argument_group("common options of the job", about)}
    for option in sorted(OPTIONS, key=_place):
        if option.field in leave_out:
            continue
        title = topic(option)
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        flags = [prefix + flag.removeprefix("--") for flag in (option.flag, *option.aliases)]
        groups[title].add_argument(
            *flags,
            dest=option.field,
            type=_reader(option, flags[0]),
            metavar="|".join(choices) if 0 < len(choices := choices_of(option)) <= 4 else option.metavar,
            default=argparse.SUPPRESS,
            help=_help(option),
            action="append" if option.repeats else "store",
        )
        if option.field not in COMMON:
            parser.hide(option.field)
    for field, flag, take in removed_options():  # a value that asks for nothing is only warned of
        parser.add_argument(prefix + flag[2:], dest=field, type=take, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


NAMED: Mapping[str, Named | Option] = {each.field: each for each in (launchers.NAMED, platforms.NAMED)}
"""The options whose values are names of objects, by field."""


def choices_of(option: Option) -> tuple[str, ...]:
    """All values of an option, without those that installed packages add; empty where there are too many."""
    return NAMED.get(option.field, option).choices


def read_option(option: Option, text: str, where: str) -> Any:
    """``text`` as a value of an option; a UsageError names ``where`` (a flag or variable) and what was expected."""
    return NAMED.get(option.field, option).read(text, where)


def topic(option: Option) -> str:
    """The title of the group in which the help has ``option``."""
    if option.field in COMMON:
        return "common options of the job"
    found = next((title for title, fields in TOPICS.items() if option.field in fields), "")
    return found or f"launcher {' or '.join(readers(option.field))}"


def _place(option: Option) -> tuple[int, int]:
    """Where ``option`` stands in the help: the common ones in their order, then topic by topic."""
    if option.field in COMMON:
        return 0, COMMON.index(option.field)
    titles = list(TOPICS)
    title = topic(option)
    return titles.index(title) + 1 if title in titles else len(titles) + 1, 0


class Value:
    """Makes a flag's value of a text. ``choices``: all that it can be; empty: there are too many to name."""

    def __init__(self, read: Callable[[str], Any], choices: Sequence[str] = ()) -> None:
        self._read = read
        self.choices = tuple(choices)

    def __call__(self, text: str) -> Any:
        return self._read(text)


def one_of(flag: str, choices: Sequence[str], read: Callable[[str], str] | None = None) -> dict[str, Any]:
    """Arguments of ``add_argument`` for a flag with ``choices``; help and errors are as for the job's options.

    ``read``: takes a word, for a flag that knows more of them than ``choices``.
    """
    return {"type": Value(read or (lambda text: chosen(choices, text, flag)), choices), "metavar": "|".join(choices)}


def given(namespace: argparse.Namespace) -> dict[str, Any]:
    """The settings given on the command line, by field."""
    values = {option.field: getattr(namespace, option.field, None) for option in OPTIONS}
    return {
        field: "\n".join(value) if isinstance(value, list) else value
        for field, value in values.items()
        if value is not None
    } | {field: getattr(namespace, field) for field in REMOVED if hasattr(namespace, field)}


def read_command_line(
    make: Callable[[str], Parser], arguments: Sequence[str]
) -> tuple[Command, argparse.Namespace, spellings.Typed | None]:
    """Reads either form of the command line; its line as typed, too, where flags aren't among the script's own.

    ``make`` builds the parser for flags with a prefix.

    Raises:
        UsageError: a flag is wrong.
    """
    parser, own = make("--"), make(OWN_PREFIX)
    command = split_script_form(parser, own, arguments)
    if command is not None:
        return command, own.parse_args(command.head), None
    command = split(parser, arguments)
    return command, parser.parse_args(command.head), typed(parser, command)


def read_request(
    make: Callable[[str], Parser], arguments: Sequence[str], environ: Mapping[str, str]
) -> tuple[Request, argparse.Namespace]:
    """The command line as a request: for the program in it, or for the platform's job where it has none.

    Raises:
        UsageError: a flag is wrong.
    """
    command, asked, line = read_command_line(make, arguments)
    return _request(command, environ, given(asked))._replace(line=line), asked


def typed(parser: Parser, command: Command) -> spellings.Typed | None:
    """``command`` as it was typed for ``parser``; None where no program's file is in it."""
    if not command.program or command.module:
        return None
    return spellings.Typed(parser.prog, command.head, command.program, parser.taken)


def _request(command: Command, environ: Mapping[str, str], values: Mapping[str, Any]) -> Request:
    program = command.program or None
    return Request(environ, values, program, command.arguments, command.module, typed=program is not None)


def readable_request(
    make: Callable[[str], Parser], arguments: Sequence[str], environ: Mapping[str, str]
) -> Request | None:
    """What can be read of a command line in which :func:`read_request` has found an error: enough to meet the other
    hosts of the job. None: where the hosts meet can't be read.
    """
    parser, own = make("--"), make(OWN_PREFIX)
    try:
        command = split_script_form(parser, own, arguments) or split(parser, _known(parser, arguments))
    except UsageError:
        return None
    values: dict[str, Any] = {}
    words = iter(command.head)
    for word in words:
        flag, equals, value = word.partition("=")
        for one in (parser, own):
            if one.takes_value(flag):
                text = value if equals else next(words, "")
                try:
                    values.update(given(one.parse_args([flag, text])))
                except UsageError:
                    if one.field_of(flag) in TO_MEET:
                        return None
                break
    request = _request(command, environ, values)
    return request._replace(program=request.program or "PROGRAM", typed=True)


def _known(parser: Parser, arguments: Sequence[str]) -> list[str]:
    """``arguments`` without the flags before PROGRAM that aren't the parser's. The word behind one is its value, unless
    it is a flag or a file.
    """
    known, rest = list[str](), list(arguments)
    while rest:
        at = _program_at(parser, rest)
        known, rest = known + rest[:at], rest[at:]
        if not rest or not rest[0].startswith("-") or rest[0] in ("--", "-m"):
            break
        valued = "=" not in rest[0] and rest[1:] and not rest[1].startswith("-") and not os.path.isfile(rest[1])
        rest = rest[2:] if valued else rest[1:]
    return known + rest


def has_option(flag: str, words: Sequence[str]) -> bool:
    """Whether ``flag`` is among ``words``, alone or as ``flag=value``."""
    return any(word.partition("=")[0] == flag for word in words)


def split(parser: Parser, arguments: Sequence[str]) -> Command:
    """``[options] [--] PROGRAM [ARGS…]``: all words from PROGRAM on are the user's, unchanged.

    ``-m MODULE`` may replace PROGRAM. ``program`` is empty where there is neither.

    Raises:
        UsageError: a flag before PROGRAM is none of ours.
    """
    at = _program_at(parser, arguments)
    head, rest = arguments[:at], list(arguments[at:])
    if rest and rest[0].startswith("-") and rest[0] not in ("--", "-m"):
        parser.unknown(rest[0], "options of the program itself come after it")
    if rest[:1] == ["--"]:
        rest = rest[1:]
    module = rest[:1] == ["-m"]
    if module:
        rest = rest[1:] or parser.error("-m needs the name of a module")
    return Command(tuple(head), rest[0] if rest else "", tuple(rest[1:]), module)


def split_script_form(parser: Parser, own: Parser, arguments: Sequence[str]) -> Command | None:
    """Reads the form in which an entry point gets hyperparameters: flags only, one of which is --train-script.

    Only ``--train-script`` and the ``--muster-…`` flags of ``own`` are ours; every other word goes to the script,
    unchanged and in order. None where this is the other form, in which PROGRAM comes before any --train-script.
    """
    first = arguments[_program_at(parser, arguments) :][:1]
    program_first = bool(first) and (first[0] in ("--", "-m") or not first[0].startswith("-"))
    if program_first or not has_option(SCRIPT_FLAG, arguments):
        return None
    head: list[str] = []
    others: list[str] = []
    script = ""
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag == SCRIPT_FLAG:
            script = value if equals else next(words, "")
        elif flag.startswith(OWN_PREFIX):
            head += [word] if equals or not own.takes_value(flag) else [word, next(words, "")]
        else:
            others.append(word)
    if not script:
        parser.error(f"{SCRIPT_FLAG} needs a file")
    return Command(tuple(head), script, tuple(others))


def _program_at(parser: Parser, arguments: Sequence[str]) -> int:
    """Where the flags of ``parser`` end."""
    at = 0
    while at < len(arguments):
        flag, equals, _ = arguments[at].partition("=")
        valued = parser.takes_value(flag)
        if valued is None:
            break
        value_follows = valued and not equals and arguments[at + 1 : at + 2] != [SCRIPT_FLAG]
        at += 2 if value_follows else 1
    return min(at, len(arguments))


def settings_table() -> str:
    """Every option as a Markdown table, for the documentation."""
    rows = ["| option | variable | meaning | default |", "|---|---|---|---|"]
    for option in OPTIONS:
        values = "\\|".join(choices_of(option)) or option.metavar
        aliases = "".join(f", `{alias}`" for alias in option.aliases)
        rows.append(f"| `{option.flag} {values}`{aliases} | `{option.variable}` | {option.help} | {option.default} |")
    return "\n".join(rows) + "\n"


def _reader(option: Option, flag: str) -> Value:
    # argparse would replace a ValueError's message by its own
    return Value(lambda text: read_option(option, text, flag), choices_of(option))


def _help(option: Option) -> str:
    choices = f" ({', '.join(choices_of(option))})" if len(choices_of(option)) > 4 else ""
    default = f" [{option.default}]" if option.default else ""
    return (option.help + choices + default).replace("%", "%%")
