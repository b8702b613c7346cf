"""The dispatcher: help, version, unknown commands, and what errors look like."""

from __future__ import annotations

import pytest

import musterpoint
from musterpoint.cli.main import COMMANDS, main


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_teaches_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words, {}) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert "muster local --hosts 2 train.py" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"], {}) == 0
    assert capsys.readouterr().out == f"musterpoint {musterpoint.__version__}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lunch"], "muster lunch: no such command; expected one of launch, local, plan, env, bundle"),
        (["launch"], "muster launch: no PROGRAM given"),
        (["launch"], "--train-script PROGRAM"),
        (["launch", "--what", "x.py"], "muster launch: unknown option --what"),
        (["plan", "--slots", "0"], "--slots='0': expected a whole number, 1 or more"),
        (["bundle", "--output"], "muster bundle: argument -o/--output: expected one argument"),
    ],
)
def test_a_mistake_is_one_sentence_and_64(words: list[str], sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words, {}) == 64
    text = capfd.readouterr().err
    assert text.startswith("musterpoint: ")
    assert sentence in text
    assert text.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"], {})
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert f"muster {name}" in text
    assert "examples:" in text
