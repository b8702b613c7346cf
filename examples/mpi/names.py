"""Which names does Python's standard library use most? Counted by all ranks together, over its real source files.

Every rank takes its share of the files, counts names and the lengths of lines in them, and one reduction adds the
counts up. Run it on two hosts of this machine, two ranks each:

    muster local --hosts 2 --slots 2 --launcher mpi examples/mpi/names.py --top 5

On SageMaker the same file is the entry point of a job with distribution={"mpi": {"enabled": True}}.
"""

from __future__ import annotations

import argparse
import array
import io
import json
import keyword
import os
import sysconfig
import tokenize
from collections import Counter
from pathlib import Path

from mpi4py import MPI

LONGEST = 200


def source_files() -> list[Path]:
    """The library's modules, in the same order on every host; test suites and installed packages are left out."""
    root = Path(sysconfig.get_path("stdlib"))
    others = {"site-packages", "test", "tests", "idlelib"}
    return sorted(path for path in root.rglob("*.py") if not others & set(path.relative_to(root).parts))


def count(path: Path, names: Counter[str], lengths: array.array[int]) -> None:
    """Adds what is in one file. A file that is no Python of this version counts for its lines only."""
    text = path.read_bytes()
    for line in text.splitlines():
        lengths[min(len(line), LONGEST)] += 1
    try:
        tokens = tokenize.tokenize(io.BytesIO(text).readline)
        words = (token.string for token in tokens if token.type == tokenize.NAME)
        names.update(word for word in words if not keyword.iskeyword(word))
    except (tokenize.TokenError, SyntaxError):
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--top", type=int, default=10, help="how many names to print")
    parser.add_argument("--files", type=int, default=None, help="count the first so many files only")
    options = parser.parse_args()

    world = MPI.COMM_WORLD
    files = source_files()[: options.files]
    names: Counter[str] = Counter()
    lengths = array.array("q", [0] * (LONGEST + 1))
    for path in files[world.rank :: world.size]:
        count(path, names, lengths)
    print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}: {names.total()} names", flush=True)

    everyone = array.array("q", lengths)
    world.Allreduce(lengths, everyone)  # a buffer of numbers: every rank has the sum
    together = world.reduce(names, op=MPI.SUM)  # Python objects: rank 0 has it
    if world.rank == 0:
        lines = sum(everyone)
        mean = sum(length * number for length, number in enumerate(everyone)) / lines
        found = {"files": len(files), "lines": lines, "mean length": round(mean, 2), "names": together.total(),
                 "most used": together.most_common(options.top)}  # fmt: skip
        folder = Path(os.environ.get("SM_MODEL_DIR", "."))
        (folder / "names.json").write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
