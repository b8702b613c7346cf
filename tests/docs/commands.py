"""Command lines of ``muster`` in the documentation, read as the commands themselves would."""

from __future__ import annotations

import functools
import re
import shlex
from importlib import import_module
from typing import Iterator

from musterpoint.base.errors import UsageError
from musterpoint.cli import env, launch, local_command_line, main, plan, torchrun
from musterpoint.cli.options import Parser, has_option, read_command_line, split
from musterpoint.cli.torchrun_flags import read_command_line as read_torchrun

ENDS = {";", "&&", "||", "|", "&", "done", "do", ")"}
HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?\n.*?\n\1\n", re.DOTALL)
QUOTED = re.compile(r'"\$\(((?:docker exec \S+ )?muster [^)]*)\)"')
"""A command whose output is one word of another."""


def commands(text: str) -> Iterator[list[str]]:
    """The words behind each ``muster`` of a shell text. What the shell would put in stands as 1."""
    text = HERE_DOCUMENT.sub("\n", text).replace("\\\n", " ")
    text = QUOTED.sub(r"\n\1\n", text)
    for line in joined(text):
        words = shlex.split(line, comments=True)
        for at, word in enumerate(words):
            if word.rpartition("/")[2] in ("muster", "$(muster", "muster.py") and words[at + 1 :]:
                rest = words[at + 1 :]
                end = next(
                    (later for later, each in enumerate(rest) if each in ENDS or each.startswith(">")), len(rest)
                )
                yield ["1" if each.startswith("$") or each == "…" else each.rstrip(")") for each in rest[:end]]


def joined(text: str) -> Iterator[str]:
    """The lines of ``text``, those with an open quote together with the next."""
    whole = ""
    for line in text.split("\n"):
        whole = f"{whole}\n{line}" if whole else line
        try:
            shlex.split(whole, comments=True)
        except ValueError:
            continue
        yield whole
        whole = ""
    assert not whole, f"a quote is left open: {whole}"


def parse(words: list[str]) -> None:
    """Raises a UsageError where the command would refuse its options."""
    name, rest = words[0], words[1:]
    if name in ("--version", "--help"):
        return
    if name not in main.COMMANDS:
        raise UsageError(f"muster {name}: no such command")
    if {"-h", "--help"} & {*rest}:
        return
    if name == "local" or (name == "plan" and (has_option("--hosts", rest) or has_option("-f", rest))):
        parser = local_command_line.parser()
        if name == "plan":
            plan._add_own(parser)
        parser.parse_args(split(parser, rest).head)
    elif name == "torchrun":
        own = torchrun.own_parser()
        command = read_torchrun(rest, {}, {flag: own.takes_value(flag) is not False for flag in own.flags})
        own.parse_args(command.own)
        known = {flag: said for flag, said in command.said.items() if said.text not in ("gpu",)}
        torchrun.translate(known, {}, {})
    elif name in ("launch", "plan"):
        read_command_line({"launch": launch, "plan": plan}[name]._parser, rest)  # type: ignore[attr-defined]
    elif name == "env":
        read_command_line(env._parser, rest)
    else:
        own = [each for each in parsers(name) if each.prog.split()[1:] == words[: len(each.prog.split()) - 1]]
        longest = max(own, key=lambda each: len(each.prog))  # muster serve lose, not muster serve
        longest.parse_args(words[len(longest.prog.split()) - 1 :])


@functools.cache
def parsers(name: str) -> tuple[Parser, ...]:
    """Every parser of a command."""
    found: tuple[Parser, ...] = import_module(main.COMMANDS[name].module).parsers()
    return found
