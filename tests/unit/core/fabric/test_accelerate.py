"""The answers of the program that asks accelerate; the real one is asked in tests/hosts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from musterpoint.base.errors import LauncherError, MusterError, UsageError
from musterpoint.base.probe import Answer
from musterpoint.core.fabric.accelerate import Accelerate, ask_accelerate

ANSWER = {
    "version": "1.15.0", "file": "", "kind": "cpu", "on_cpus": True, "backend": "gloo",
    "variables": {"ACCELERATE_USE_CPU": "true"}, "shape": {"num_processes": [4, "words"]}, "unused": ["tee"],
    "script": "train.py", "module": False, "no_python": False, "arguments": ["--lr", "1"],
}  # fmt: skip


def asked(status: int | None, text: str) -> Accelerate:
    seen: list[Any] = []

    def how(words: Any, environ: Any, cwd: str, errors: bool) -> Answer:
        seen.append((words[0], json.loads(words[3]), cwd))
        return Answer(status, text)

    found = ask_accelerate("/usr/bin/python3", ["--cpu", "train.py"], "a.yaml", "/code", {}, how)
    request = {"words": ["--cpu", "train.py"], "config": "a.yaml", "folder": "/code"}
    assert seen == [("/usr/bin/python3", request, "/")]
    return found


def test_an_answer_among_warnings() -> None:
    found = asked(0, f"a warning\n{json.dumps(ANSWER)}\nanother one\n")
    assert (found.backend, found.variables, found.arguments) == ("gloo", ANSWER["variables"], ("--lr", "1"))
    assert (found.given("num_processes", "words"), found.given("num_processes", "file")) == (4, None)
    assert found.given("num_machines", "words") is None


@pytest.mark.parametrize(
    ("status", "text", "error", "words"),
    [
        (0, '{"error": "accelerate launch: unrecognized arguments: --x"}', UsageError, "unrecognized arguments: --x"),
        (1, "Traceback\nModuleNotFoundError: No module named 'accelerate'", LauncherError, "install accelerate"),
        (1, "Traceback\nImportError: libcudart.so.12", LauncherError, r"\(exit code 1\): ImportError: libcudart.so.12"),
        (-9, "", LauncherError, r"\(exit code -9\): it printed nothing"),
        (None, "importing", LauncherError, "no answer after 2 times 60 s"),
        (0, "[]\n1", LauncherError, "exit code 0"),
    ],
)
def test_no_answer(status: int | None, text: str, error: type[MusterError], words: str) -> None:
    with pytest.raises(error, match=words):
        asked(status, text)


def test_a_slow_first_import() -> None:
    answers = [Answer(None, ""), Answer(0, json.dumps(ANSWER))]
    assert ask_accelerate("python3", (), "", "/", {}, lambda *words: answers.pop(0)).version == "1.15.0"
