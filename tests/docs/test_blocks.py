"""Every block of the documentation is of a kind that the tests know; what can't be run here is read, at least."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from musterpoint.base.job_text import JobText
from musterpoint.cli import local_command_line
from musterpoint.core.job import roles
from musterpoint.local.job_file import read_job_file

from . import commands
from .blocks import LANGUAGES, READER, ROOT, Block, blocks
from .fresh import unnamed

BLOCKS = blocks()
OF_THE_CHECKOUT = re.compile(r"(?<![\w/$.}-])((?:examples|scripts|docker|container|docs)/[\w./-]*\w)")
MADE = {"container/launcher.py"}
"""Files that no clone has, and how they are made is said beside them."""


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def by_place(wanted: list[Block]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", wanted, ids=lambda block: block.place)


def test_every_block_is_run_or_says_why_not() -> None:
    assert [block.place for block in BLOCKS if block.language not in LANGUAGES] == [], "of no language the tests know"
    needing = [block for block in of("sh", "dockerfile", "text", "") if block.kind == ""]
    assert [block.place for block in needing] == [], "a comment has to say what is done with it"
    odd = [block for block in BLOCKS if (block.kind in ("output", "sample")) != (block.language in ("text", ""))]
    assert [block.place for block in odd if block.kind != "named"] == [], "only text is output or a sample"
    assert len(BLOCKS) > 80


@by_place([block for block in of("sh") if block.kind != "named"])
def test_shell_blocks_are_sound(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in commands.commands(block.text):
        commands.parse(words)
    for name in OF_THE_CHECKOUT.findall(block.text):
        assert (ROOT / name).exists() or name in MADE, f"{name} is named, and there is none"


@by_place([block for block in of("sh") if "examples/" in block.text])
def test_a_page_names_the_packages_of_the_examples_that_it_runs(block: Block) -> None:
    """Also where another test runs them, or none: in an environment that may have more than the page says."""
    above = BLOCKS[: BLOCKS.index(block)]
    assert unnamed(block, [each for each in above if each.page == block.page]) == set()


@by_place(of("python"))
def test_python_blocks_compile_and_find_their_imports(block: Block) -> None:
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("musterpoint"):
            module = importlib.import_module(node.module or "") if node.module != "musterpoint.sagemaker" else None
            for name in node.names:
                assert module is None or hasattr(module, name.name) or importlib.import_module(
                    f"{node.module}.{name.name}"
                ), name.name  # fmt: skip


def test_json_and_toml_are_read_by_what_reads_them(tmp_path: Path) -> None:
    for block in of("json"):
        json.loads(block.text)
    for block in of("toml"):
        (tmp_path / "job.toml").write_text(block.text)
        if sys.version_info >= (3, 11):
            job = read_job_file(str(tmp_path / "job.toml"), local_command_line.flags_taken())
            local_command_line.parser().parse_args(job.options)
            assert job.program == str(tmp_path / "train.py") or roles.of_file(job.roles or JobText("", {}, ()))


def test_yaml_is_yaml(stack: Callable[[str], Path]) -> None:
    read = "import json, sys, yaml; [list(yaml.safe_load_all(text)) for text in json.load(sys.stdin)]"
    texts = json.dumps([block.text for block in of("yaml")])
    command = [stack("kubernetes") / "python", "-c", read]
    done = subprocess.run(command, input=texts, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_script_that_a_page_shows_is_the_one_that_its_commands_run() -> None:
    mark = "<!-- sum.py"
    shown = [block for block in BLOCKS if block.kind == "named" and block.how[0] == mark.removeprefix("<!-- ")]
    assert [block.text for block in shown] == [(READER / "sum.py").read_text(encoding="utf-8")]
    files = [block for block in of("toml") if block.kind == "named"]
    examples = ROOT / "examples" / "roles"
    assert len(files) == 3
    assert [block.text for block in files] == [(examples / block.how[0]).read_text(encoding="utf-8") for block in files]
