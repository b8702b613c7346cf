"""The documentation's blocks run as they stand there, each after those it goes on from, with only what a page says.

A part of them, or all (``scripts/docs --run``: also those marked ``slow``, in environments that pip has made).
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

from .blocks import READER, ROOT, Block, blocks
from .fresh import installed, linked, packages, variables
from .pair import Pair

SLOW, PIP = (os.environ.get("DOCS_RUN") in kinds for kinds in (("slow", "whole"), ("whole",)))
"""Whether slow steps run, too, and whether pip makes the environments."""
DIFFERS = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\d{4}-\d\d-\d\d-[\d-]+"), "TIME"),
    (re.compile(r"\d+\.\d+|\d+(?= m?s\b)"), "0"),
    (re.compile(r"\bpid \d+|\bport \d+"), "N"),
    (re.compile(r"\s+"), " "),
)


class Step(NamedTuple):
    """Blocks that run at once, one on each host if there are hosts, and the outputs that the page shows of them."""

    blocks: tuple[Block, ...]
    outputs: tuple[Block, ...]


class Story(NamedTuple):
    """Steps in one directory; ``packages`` are those that the reader has."""

    steps: tuple[Step, ...]
    packages: tuple[str, ...]

    @property
    def place(self) -> str:
        return self.steps[0].blocks[0].place

    @property
    def quick(self) -> Story:
        """Without its first slow step, and those after it."""
        fits = takewhile(lambda step: not any(block.said("slow") for block in step.blocks), self.steps)
        return self._replace(steps=tuple(fits))

    @property
    def text(self) -> tuple[str, ...]:
        return (*self.packages, *(block.text for step in self.steps for block in step.blocks))


def stories() -> Iterator[Story]:
    found: list[tuple[list[list[Block]], list[list[Block]], list[Block]]] = []
    above: list[Block] = []
    for block in blocks():
        if above and above[-1].page != block.page:
            above = []
        if block.kind == "runs":
            beside = above[-1] if above else None
            if (
                block.said("on")
                and beside
                and beside.kind == "runs"
                and beside.said("on")
                and not block.said("goes on")
            ):
                found[-1][0][-1].append(block)
            elif block.said("goes on"):
                found[-1][0].append([block])
                found[-1][1].append([])
                found[-1][2].extend(each for each in above if each not in found[-1][2])
            else:
                found.append(([[block]], [[]], list(above)))
        elif block.kind == "output":
            found[-1][1][-1].append(block)
        above.append(block)
    for steps, outputs, before in found:
        made = tuple(Step(tuple(one), tuple(its)) for one, its in zip(steps, outputs))
        yield Story(made, packages(before))


def once(all_of_them: Iterator[Story]) -> list[Story]:
    """Stories that are the same are run once."""
    seen: dict[tuple[str, ...], Story] = {}
    for whole in all_of_them:
        story = whole if SLOW else whole.quick
        if story.steps:
            seen.setdefault(story.text, story)
    return list(seen.values())


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> functools.partial[Path]:
    return functools.partial(environment, tmp_path_factory.mktemp("environments"))


@functools.cache
def environment(folder: Path, names: tuple[str, ...]) -> Path:
    make = installed if PIP else linked
    return make(folder / ("-".join(re.sub(r"\W", "", name) for name in names) or "bare"), names)


def plain(line: str) -> str:
    for pattern, instead in DIFFERS:
        line = pattern.sub(instead, line)
    return line.strip()


def missing(shown: str, printed: str) -> list[str]:
    """The lines of a page's output that weren't printed."""
    lines = {plain(line) for line in printed.split("\n")}
    wanted = [plain(line) for line in shown.split("\n")]
    return [
        line
        for line in wanted
        if line not in ("", "…")
        and not (any(each.startswith(line[:-1].strip()) for each in lines) if line.endswith("…") else line in lines)
    ]


def reports(page: Path, jobs: Path) -> list[str]:
    """The page's commands in a sentence or a table that show a job which its blocks have left."""
    left = {path.name for path in jobs.glob("*") if path.is_dir()}
    found = set(re.findall(r"`muster report muster-jobs/([\w-]+)`", page.read_text(encoding="utf-8")))
    named = left & found or (left if found & {"NAME", "JOB"} and len(left) == 1 else set())
    return [f"muster report muster-jobs/{name}" for name in sorted(named)]


@pytest.mark.parametrize("story", once(stories()), ids=lambda story: story.place)
def test_blocks_run(
    story: Story, tmp_path: Path, environ: dict[str, str], environments: functools.partial[Path]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    env = variables(environments(story.packages), tmp_path, environ)
    for step in story.steps:
        for name in {name for block in step.blocks for name in block.said("with")}:
            source = ROOT / name if name == "examples" else READER / name
            if not (here / name).exists():
                (here / name).symlink_to(source)
        shells = [["bash" if block.language == "sh" else "python", "-e" if block.language == "sh" else "-q", "-c",
                   block.text] for block in step.blocks]  # fmt: skip
        hosts = [host for block in step.blocks for host in block.said("on")]
        with Pair(hosts) as pair:
            running = [
                subprocess.Popen(
                    [*pair.on(number), *shell], cwd=here, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True,
                )
                for number, shell in enumerate(shells)
            ]  # fmt: skip
            try:
                printed = [process.communicate(timeout=500)[0] for process in running]
            finally:
                for process in running:
                    process.kill()
        for block, process, text in zip(step.blocks, running, printed):
            assert process.returncode == block.code, f"{block.place} ended with {process.returncode}:\n{text}"
        for output in step.outputs:
            assert not missing(output.text, "\n".join(printed)), (
                f"{output.place} shows {missing(output.text, chr(10).join(printed))}; printed was:\n"
                + "\n".join(printed)
            )
        named = re.findall(r"\bmuster report \S*muster-jobs/[\w.-]+", "\n".join(printed))
        for command in {*named, *reports(ROOT / step.blocks[0].page, here / "muster-jobs")}:
            done = subprocess.run(
                ["bash", "-c", command], cwd=here, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
