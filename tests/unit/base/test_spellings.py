"""Other tools' words for our options."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base.spellings import ALIKE, meant, plain
from musterpoint.cli import launch, local, plan, torchrun
from musterpoint.core.unheeded import behind_the_program

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
        ("print('hi')", ["--hosts", "2"], "muster local --hosts ... hi.py"),
        ("print('hi')", ["--nproc_per_node", "2"], "muster launch --slots ... hi.py"),
        ("print('hi')", ["--rdzv_endpoint=a:1"], "muster launch --rollcall-leader ... hi.py"),
        ("print('hi')", ["--env", "A=b"], "muster local --env ... hi.py"),
        ("parser.add_argument('--hosts')", ["--hosts", "2"], ""),
        ("flags.DEFINE_integer('nproc_per_node', 1)", ["--nproc-per-node=2"], ""),
        ("fire.Fire(main)\ndef main(name, workers): ...", ["--name", "x", "--workers", "3", "-n", "2"], ""),
    ],
)
def test_words_behind_the_program(text: str, words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "hi.py").write_text(text)
    known = {"--slots", "--nnodes", "--rollcall-leader"}
    found = behind_the_program(str(tmp_path / "hi.py"), words, known, "muster launch")
    assert [text.rpartition(": ")[2] for text in found] == ([said] if said else [])
