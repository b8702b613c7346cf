"""The words in front of the program: the same on every host, and what they start gets its own words alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from musterpoint.launch.program import stub_arguments, through_stub


def test_the_stub_is_read_from_where_the_variable_says(tmp_path: Path) -> None:
    stub = tmp_path / "stub"
    stub.write_text("import sys\nprint(sys.argv, sys.flags.isolated, sys.flags.no_site)\n")
    argv = through_stub(sys.executable, ["train.py", "--lr", "a b"])
    done = subprocess.run(
        argv, env={**os.environ, "MUSTER_STUB": str(stub)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['-c', '--', 'train.py', '--lr', 'a b'] 1 1\n"


def test_words_and_arguments_are_the_same() -> None:
    words = tuple(argument.text for argument in stub_arguments("python3", ["a", "b"]))
    assert words == through_stub("python3", ["a", "b"])
