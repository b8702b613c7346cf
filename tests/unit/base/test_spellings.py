"""Other tools' words for our options."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.base.spellings import ALIKE, Typed, meant, plain
from musterpoint.cli import launch, local, plan, torchrun
from musterpoint.cli.main import main
from musterpoint.core.code.misplaced_options import behind_the_program

LOCAL = local.parsers()[0].flags
LAUNCH = launch.parsers()[0].flags


@pytest.mark.parametrize(
    ("word", "known", "flag"),
    [
        ("--nnodes=2", LOCAL, "--hosts"),
        ("--num_machines", LOCAL, "--hosts"),
        ("-n", LOCAL, "--slots"),
        ("-np", LAUNCH, "--slots"),
        ("--num_processes", LAUNCH, "--slots"),
        ("--master_addr", LAUNCH, "--rollcall-leader"),
        ("-x", LOCAL, "--env"),
        ("-x", LAUNCH, ""),
        ("--lr", LAUNCH, ""),
    ],
)
def test_the_flag_that_a_word_stands_for(word: str, known: tuple[str, ...], flag: str) -> None:
    assert meant(word, known) == flag


def test_no_word_stands_for_two_flags() -> None:
    words = [word for row in ALIKE for side in row for word in side]
    assert len(words) == len(set(words)) and words == [plain(word) for word in words]


def test_our_words_are_flags() -> None:
    """Each of some command, or of a job's file."""
    flags = {flag for each in (local, launch, plan, torchrun) for parser in each.parsers() for flag in parser.flags}
    assert {word for ours, _ in ALIKE for word in ours} <= flags | {"--arguments", "--program"}


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("print('hi')", ["--hosts", "2"], "local --hosts 2 hi.py"),
        ("print('hi')", ["--nproc_per_node=2", "--lr", "1"], "launch --launcher ranks --nproc-per-node 2 hi.py --lr 1"),
        ("print('hi')", ["--rdzv_endpoint=a:1"], "launch --launcher ranks --rollcall-leader a:1 hi.py"),
        ("print('hi')", ["--env", "A=b c", "x", "--nnodes=2"], "local --env 'A=b c' --hosts 2 hi.py x"),
        ("print('hi')", ["--cpu-fallback", "x"], "local --cpu-fallback hi.py x"),
        ("print('hi')", ["--standalone", "--slots", "2"], "launch --launcher ranks --slots 2 hi.py"),
        ("parser.add_argument('--hosts')", ["--hosts", "2"], ""),
        ("flags.DEFINE_integer('nproc_per_node', 1)", ["--nproc-per-node=2"], ""),
        ("fire.Fire(main)\ndef main(name, workers): ...", ["--name", "x", "--workers", "3", "-n", "2"], ""),
    ],
)
def test_words_behind_the_program(text: str, words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "hi.py").write_text(text)
    line = Typed("muster launch", ("--launcher", "ranks"), "hi.py", launch.parsers()[0].taken)
    found = behind_the_program(str(tmp_path / "hi.py"), words, line)
    assert [text.rpartition(": muster ")[2] for text in found] == ([said] if said else [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "hi.py", "--hosts", "2", "--env", "A=b"], "muster plan --hosts 2 --env A=b hi.py"),
        (["plan", "--hosts", "2", "hi.py", "--slots=2"], "muster plan --hosts 2 --slots 2 hi.py"),
        (
            ["torchrun", "--muster-plan", "hi.py", "--nproc_per_node=2"],
            "muster torchrun --muster-plan --nproc-per-node 2 hi.py",
        ),
        (
            ["torchrun", "--muster-plan", "hi.py", "--slots", "2"],
            "muster torchrun --muster-plan --muster-slots 2 hi.py",
        ),
    ],
)
def test_the_line_that_was_meant(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hi.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main(words, {"PATH": os.environ["PATH"], "COLUMNS": "300"}) == 0
    assert f"Options of musterpoint stand before it: {said}" in capfd.readouterr().out
    assert main(said.removeprefix("muster ").split(), {"PATH": os.environ["PATH"]}) == 0
