"""The commands of ``muster`` that people read outside of blocks: inline code of pages, help texts, messages."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import NamedTuple

from musterpoint.cli import main, options
from musterpoint.core.launch.launchers import every

from . import commands
from .blocks import PAGES, ROOT

FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
LINE = re.compile(r"^(?: +|usage: )(?:[A-Z_]+=\S+ |eval \"\$\()?muster [a-z].*?(?= {2,}|$)", re.MULTILINE)
"""An example of a help text, up to its explanation."""
PROSE = re.compile(r"\bmuster (?=-?-?[a-z])[^`\n]*")
LEFT_OUT = re.compile(r"\[[^\]\-'\"{][^\]]*\]|( ?\.\.\.)?\]+(\.\.\.)?(?=\s|$)|(?<=\s)\[(--\S+\.\.\.)?(?=\S)")
"""What a usage has in brackets, but the options; of those the brackets."""
PLACEHOLDER = re.compile(r"[A-Z]+(?:\.py)?|…|\.\.\.")


class Printed(NamedTuple):
    """A command: where it stands, its words behind ``muster``, and whether people have nothing to fill in there."""

    place: str
    words: tuple[str, ...]
    exact: bool = False


def everywhere() -> list[Printed]:
    """Every command that is printed outside of blocks, once for each place."""
    return list(dict.fromkeys([*of_pages(), *of_help(), *of_messages(), *of_launchers()]))


def of_pages() -> Iterator[Printed]:
    for page in sorted({*PAGES, *ROOT.glob("*.md")}):
        text = FENCED.sub("", page.read_text(encoding="utf-8"))
        yield from of_code(str(page.relative_to(ROOT)), CODE.findall(text.replace("\\|", "|")))


def of_help() -> Iterator[Printed]:
    """Commands of help texts, which make some of their lines of other commands' lines."""
    for name in ("", *main.COMMANDS):
        page = io.StringIO()
        with redirect_stdout(page):
            try:
                main.main([*name.split(), "--help", *(["all"] if name not in ("", "torchrun") else [])], {})
            except SystemExit:
                pass
        yield from of_text(f"muster {name} --help", page.getvalue())
    for parser in commands.parsers("plan"):
        yield from of_text(f"{parser.prog} --help", parser.format_help())


def of_messages() -> Iterator[Printed]:
    """Commands of every text in the source that is no docstring."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        # docstrings, of fields too, and the parts of f-strings, which are read whole
        silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        silent |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if id(node) not in silent and (text := text_of(node)):
                yield from of_text(f"{file.relative_to(ROOT)}:{node.lineno}", text)  # type: ignore[attr-defined]


def of_launchers() -> Iterator[Printed]:
    """What is told to people who typed another launcher's command."""
    for launcher in every():
        for command, words in launcher.instead_of.items():
            for way in ("launch", "local"):
                yield from of_code(f"in place of {command}", [f"muster {way} {words}"])


def text_of(node: ast.AST) -> str:
    """The text that ``node`` makes, with the constants of the command line, and VALUE for every other value."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    known = {name: value for name, value in vars(options).items() if isinstance(value, str)}
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else known.get(ast.unparse(part.value), "VALUE")
        for part in node.values
        if isinstance(part, (ast.Constant, ast.FormattedValue))
    )


def of_text(place: str, text: str) -> Iterator[Printed]:
    """Whole commands on lines of their own and in backquotes; in prose, the options right behind a command's name."""
    yield from of_code(place, [line.removeprefix("usage:") for line in LINE.findall(text)])
    text = LINE.sub("", text)
    yield from of_code(place, CODE.findall(text))
    for found in PROSE.findall(CODE.sub("", text)):
        line = re.split(r" {2,}|[;|)]", found)[0]
        name, *rest = (word.strip(",.'\"[]") for word in line.split()[1:])
        if name.rstrip(":") in main.COMMANDS or (rest[:1] and rest[0].startswith("--")):
            name = name.rstrip(":")
            yield Printed(place, (name, *filled(name, leading(name, rest))))


def leading(name: str, words: list[str]) -> list[str]:
    """The options at the beginning of ``words``, with their values; a word with a colon ends a label."""
    taken: list[str] = []
    for word in words:
        value = bool(taken) and taken[-1].startswith("-") and "=" not in taken[-1] and takes_value(name, taken[-1])
        if word.endswith(":") or not (value or word.startswith("-")):
            break
        taken.append(word)
    return taken


def of_code(place: str, texts: list[str]) -> Iterator[Printed]:
    """Commands in code; what may be left out is left out where it is no option."""
    for text in texts:
        if re.search(r"\bmuster [a-z-]", text):
            usage = " ".join(text.split())
            for name, *rest in commands.commands(shown := LEFT_OUT.sub("", usage)):
                words = list(filled(name, rest))
                yield Printed(place, (name, *words), exact=shown == usage and words == rest)


def filled(name: str, words: list[str]) -> Iterator[str]:
    """``words`` with something possible in the place of names such as N and FILE, the first of ``a|b``, and a value
    for an option at the end.
    """
    parsers = commands.parsers(name) if name in main.COMMANDS else ()
    actions = {flag: action for parser in parsers for action in parser.actions for flag in action.option_strings}
    if words and takes_value(name, words[-1]):
        words = [*words, "VALUE"]
    for before, word in zip(["", *words], words):
        if re.fullmatch(r"[\w-]+(\|[\w-]+)+", word):
            word = word.partition("|")[0]
        if PLACEHOLDER.fullmatch(word):
            kind = actions[before].type if before in actions else None
            word = kind.choices[0] if isinstance(kind, options.Value) and kind.choices else "1"
        yield word


def takes_value(name: str, flag: str) -> bool:
    return name in main.COMMANDS and any(parser.takes_value(flag) for parser in commands.parsers(name))
