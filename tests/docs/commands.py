"""Command lines of ``muster`` in the documentation, read as the commands themselves would."""

from __future__ import annotations

import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from typing import Iterator

from musterpoint.base.errors import UsageError
from musterpoint.cli import check, env, launch, local_options, main, plan, torchrun
from musterpoint.cli.options import has_option, read, split
from musterpoint.cli.torchrun_flags import read as read_torchrun

ENDS = {";", "&&", "||", "|", "&", "done", "do", ")"}
HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?\n.*?\n\1\n", re.DOTALL)


def commands(text: str) -> Iterator[list[str]]:
    """The words behind each ``muster`` of a shell text. What the shell would put in stands as 1."""
    text = HERE_DOCUMENT.sub("\n", text).replace("\\\n", " ")
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
    if "--help" in rest:
        return
    if name == "local" or (name == "plan" and (has_option("--hosts", rest) or has_option("-f", rest))):
        parser = local_options.parser()
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
        read({"launch": launch, "plan": plan}[name]._parser, rest)  # type: ignore[attr-defined]
    elif name == "env":
        read(env._parser, rest)
    elif name == "check":
        check._parser().parse_args(rest)
    else:
        page = StringIO()
        with redirect_stdout(page):
            try:
                main.main([name, "--help"], {})
            except SystemExit:
                pass
        for word in rest:
            if word.startswith("-") and word.partition("=")[0] not in page.getvalue():
                raise UsageError(f"muster {name}: no option {word}")
