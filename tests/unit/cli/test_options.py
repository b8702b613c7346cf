"""The command line: both forms, flags derived from the settings, errors in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import OPTIONS
from musterpoint.cli.main import main
from musterpoint.cli.options import Command, Parser, add_options, given, read_command_line, settings_table


def make(prefix: str) -> Parser:
    parser = Parser("muster launch", "A test.")
    parser.add_argument(prefix + "json", action="store_true")
    add_options(parser, prefix=prefix)
    return parser


def settled(words: str | list[str]) -> tuple[Command, dict[str, Any]]:
    command, asked, _ = read_command_line(make, words.split() if isinstance(words, str) else words)
    return command, given(asked)


PROGRAM = [
    ("train.py", ("train.py", ()), {}),
    ("train.py --slots 3 --lr 0.1 -m x -- y", ("train.py", ("--slots", "3", "--lr", "0.1", "-m", "x", "--", "y")), {}),
    ("--slots 2 train.py", ("train.py", ()), {"slots": 2}),
    ("--slots=2 --json train.py --json", ("train.py", ("--json",)), {"slots": 2}),
    ("--nproc-per-node 4 -- train.py -- a", ("train.py", ("--", "a")), {"slots": 4}),
    ("--launcher ranks -m pkg.train --lr 1", ("pkg.train", ("--lr", "1")), {"launcher": "ranks"}),
    ("train.py --train-script other.py", ("train.py", ("--train-script", "other.py")), {}),
    ("--slots 2 train.py --train-script x", ("train.py", ("--train-script", "x")), {"slots": 2}),
    ("--log-dir=a=b ./run", ("./run", ()), {"log_dir": "a=b"}),
    ("", ("", ()), {}),
]


@pytest.mark.parametrize(("words", "program", "options"), PROGRAM, ids=[row[0] or "nothing" for row in PROGRAM])
def test_program_form(words: str, program: tuple[str, tuple[str, ...]], options: dict[str, Any]) -> None:
    command, asked = settled(words)
    assert (command.program, command.arguments) == program
    assert command.module is (program[0] == "pkg.train")
    assert asked == options


SCRIPT = [
    ("--train-script t.py --epochs 3", ("--epochs", "3"), {}),
    ("--epochs 3 --train-script t.py --lr 0.1", ("--epochs", "3", "--lr", "0.1"), {}),
    ("--train-script=t.py", (), {}),
    ("--slots 4 --train-script t.py --launcher mine", ("--slots", "4", "--launcher", "mine"), {}),
    ("--muster-slots 4 --train-script t.py --slots 9", ("--slots", "9"), {"slots": 4}),
    ("--lr=1 --muster-launcher=ranks --train-script t.py", ("--lr=1",), {"launcher": "ranks"}),
    ("--json --train-script t.py x y", ("--json", "x", "y"), {}),
    ("--slots --train-script t.py", ("--slots",), {}),
    ("-k v --train-script t.py --train 1", ("-k", "v", "--train", "1"), {}),
    (["--train-script", "t.py", "a b", "", '{"k": "é\n"}'], ("a b", "", '{"k": "é\n"}'), {}),
]


@pytest.mark.parametrize(("words", "arguments", "options"), SCRIPT, ids=[str(row[0]) for row in SCRIPT])
def test_script_form(words: str | list[str], arguments: tuple[str, ...], options: dict[str, Any]) -> None:
    command, asked = settled(words)
    assert (command.program, command.arguments, asked) == ("t.py", arguments, options)


WRONG = [
    ("--epochs 3 train.py", r"unknown option --epochs \(options of the program itself come after it\)"),
    ("--slot 3 train.py", r"unknown option --slot \(did you mean --slots\?\)"),
    ("--launcer=ranks t.py", r"unknown option --launcer \(did you mean --launcher\?\)"),
    ("--slots x train.py", "--slots='x': expected a whole number"),
    ("--slots", "expected one argument"),
    ("--launcher horovod t.py", "--launcher='horovod': expected one of auto"),
    ("--train-script", "--train-script needs a file"),
    ("--train-script t.py --muster-slot 3", r"--muster-slot \(did you mean --muster-slots\?\)"),
    ("--muster-slots 3 t.py", "unknown option --muster-slots"),
    ("-m", "-m needs the name of a module"),
    ("--json=1 t.py", "ignored explicit argument"),
]


@pytest.mark.parametrize(("words", "sentence"), WRONG, ids=[row[0] for row in WRONG])
def test_errors(words: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        settled(words)
    assert "\n" not in str(caught.value)


def test_the_table_and_the_help_have_every_option() -> None:
    table, text = settings_table(), make("--").format_help()
    for option in OPTIONS:
        assert f"`{option.variable}`" in table
        assert option.flag in text
    assert len(table.splitlines()) == len(OPTIONS) + 2


@pytest.mark.parametrize("command", ["launch", "local", "plan", "env"])
def test_the_whole_help_has_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help", "all"], {})
    text = capsys.readouterr().out
    missing = {option.flag for option in OPTIONS if option.flag not in text}
    known = {"--rollcall-leader", "--nnodes", "--node-rank", "--job-file"}
    assert missing <= known, "of hosts that muster local names itself, and its -f"


def test_a_value_may_begin_with_a_dash() -> None:
    command, asked, _ = read_command_line(make, ["--mpi-options", "--noprefix", "--slots", "2", "train.py", "--lr"])
    assert (asked.mpi_options, asked.slots, command.arguments) == ("--noprefix", 2, ("--lr",))
    with pytest.raises(UsageError, match=r"--slots.*expected one argument"):
        read_command_line(make, ["--slots", "--launcher", "mpi", "train.py"])
