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

from musterpoint.cli import local_options
from musterpoint.local.words import read_job_file

from . import commands
from .blocks import LANGUAGES, READER, ROOT, Block, blocks

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


def test_what_is_said_to_be_run_elsewhere_is() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    texts += [(ROOT / "tests" / "images" / "sdk.py").read_text(encoding="utf-8")]
    for block in BLOCKS:
        if block.kind == "runs in":
            assert (ROOT / "tests" / block.how[0]).exists(), f"{block.place}: no tests/{block.how[0]}"
            test = (ROOT / "tests" / block.how[0]).read_text(encoding="utf-8")
            sought = [Path(block.page).name, *OF_THE_CHECKOUT.findall(block.text)]
            assert any(name in test for name in sought), f"{block.place}: tests/{block.how[0]} doesn't name it"
        if block.kind == "named":
            sought = (f"<!-- {block.how[0]}", f"<!-- {block.how[0].split()[0]} {{")
            assert any(each in text for text in texts for each in sought), f"{block.place}: nothing looks for it"


@by_place([block for block in of("sh") if block.kind != "named"])
def test_shell_blocks_are_sound(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in commands.commands(block.text):
        commands.parse(words)
    for name in OF_THE_CHECKOUT.findall(block.text):
        assert (ROOT / name).exists() or name in MADE, f"{name} is named, and there is none"


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
            job = read_job_file(str(tmp_path / "job.toml"), local_options.flags_taken())
            local_options.parser().parse_args(job.options)
            assert job.program == str(tmp_path / "train.py")


def test_yaml_is_yaml(stack: Callable[[str], Path]) -> None:
    read = "import json, sys, yaml; [list(yaml.safe_load_all(text)) for text in json.load(sys.stdin)]"
    texts = json.dumps([block.text for block in of("yaml")])
    command = [stack("kubernetes") / "python", "-c", read]
    done = subprocess.run(command, input=texts, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_samples_have_musterpoints_own_words() -> None:
    """Three words in a row of each line that says whose it is are found in the source."""
    source = " ".join(re.sub(r'"\s*f?"', "", path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py"))
    source = re.sub(r"\s+", " ", source)
    for block in BLOCKS:
        for line in block.text.split("\n") if block.kind == "sample" else ():
            found = re.match(r"(?:\S+ \| )?(?:musterpoint|muster): (.+)", line)
            words = [part.split() for part in re.findall(r"[a-z' ]{12,}", found[1] if found else "")]
            threes = [" ".join(each[at : at + 3]) for each in words for at in range(len(each) - 2)]
            assert not threes or any(three in source for three in threes), f"{block.place}: {line}"


def test_the_readers_files_are_used() -> None:
    wanted = {name for block in BLOCKS for name in block.said("with")}
    assert {path.name for path in READER.iterdir()} <= wanted


def test_a_script_that_a_page_shows_is_the_one_that_its_commands_run() -> None:
    mark = "<!-- sum.py"
    shown = [block for block in BLOCKS if block.kind == "named" and block.how[0] == mark.removeprefix("<!-- ")]
    assert [block.text for block in shown] == [(READER / "sum.py").read_text(encoding="utf-8")]
