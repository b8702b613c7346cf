"""``muster``: one word per command, each in its own module, imported only when it is called.

The one-file launcher starts here too: there the command follows from the file's name.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Mapping, NamedTuple, Sequence

import musterpoint
from musterpoint.base.errors import UsageError, similar
from musterpoint.cli.errors import guarded
from musterpoint.core.launch.launchers import instead_of


class Entry(NamedTuple):
    """A command: the module whose ``main(arguments, environ)`` it is, and what it does."""

    module: str
    help: str


COMMANDS = {
    "launch": Entry("musterpoint.cli.launch", "gather the hosts the platform started and run PROGRAM under a launcher"),
    "torchrun": Entry("musterpoint.cli.torchrun", "torchrun's own command line, on every host, as launch"),
    "local": Entry("musterpoint.cli.local", "run a job on N hosts of this machine"),
    "serve": Entry("musterpoint.cli.serve", "SageMaker's training API on this machine, with real jobs under it"),
    "plan": Entry("musterpoint.cli.plan", "show what every host would run, and why; starts nothing"),
    "check": Entry("musterpoint.cli.check", "look at this host, or at all hosts of the job, before anything starts"),
    "report": Entry("musterpoint.cli.report", "the timeline of a finished job: tables, a page, a trace"),
    "env": Entry("musterpoint.cli.env", "the variables a script of this job sees"),
    "bundle": Entry("musterpoint.cli.bundle", "write the whole launcher as one Python file"),
    "completion": Entry("musterpoint.cli.completion", "a script that completes all this in bash, zsh or tcsh"),
}

FILE_NAMES = {
    "train": "musterpoint.cli.train",
    "muster_driver": "musterpoint.cli.driver",
    "torchrun": "musterpoint.cli.torchrun",
}
"""What the one-file launcher runs under these names."""
WITHOUT_ARGUMENTS = ("train", "muster_driver")

_INSTALLED_ONLY = ("musterpoint.local", "musterpoint.serve", "musterpoint.tools.viewer", "musterpoint.cli.completion")
"""What the one-file launcher leaves out."""

HELP = """usage: muster COMMAND [options] [PROGRAM [ARGS...]]

musterpoint assembles the hosts of a distributed training job, starts the right launcher on each,
keeps watch, and says truly how the job ended.

commands:
{commands}

examples:
  muster local --demo                            a job of two hosts, and how it fails: nothing else is needed
  muster local --hosts 2 train.py --epochs 3     two hosts on this machine, as they would be on the platform
  muster plan --hosts 2 train.py --epochs 3      what each of them would run, every flag with its reason
  muster launch --slots 8 train.py --epochs 3    on every host of a cluster that the platform has started
  muster check                                   is this host fit for the job? on each host: are all of them?
  muster torchrun --nproc-per-node 8 train.py    torchrun's own options, each followed or refused by name
  muster launch -m package.train --lr 0.1        a module
  muster report muster-jobs/JOB                  where the time went, what failed first
  muster bundle -o launcher.py                   one file to put beside a training script

muster COMMAND --help tells more; muster --version tells the version.
"""


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster`` with ``argv`` (the words after it); the exit code."""
    return guarded(lambda: _run(list(sys.argv[1:] if argv is None else argv), environ), anywhere=True)


def _run(words: list[str], environ: Mapping[str, str]) -> int:
    if words[0:1] == ["help"] and words[1:2]:
        words = [words[1], "--help", *words[2:]]
    if not words or words[0] in ("-h", "--help", "help"):
        rows = "\n".join(f"  {name:<11} {entry.help}" for name, entry in COMMANDS.items())
        print(HELP.format(commands=rows), end="")
        return 0
    if words[0] in ("-V", "--version"):
        print(f"musterpoint {musterpoint.__version__}")
        return 0
    entry = COMMANDS.get(words[0])
    if entry is None:
        raise UsageError(f"muster {words[0]}: no such command{_meant(words[0])}; expected one of {', '.join(COMMANDS)}")
    try:
        command = import_module(entry.module)
    except ModuleNotFoundError as error:
        if error.name != entry.module and not (error.name or "").startswith(_INSTALLED_ONLY):
            raise
        raise UsageError(
            f"muster {words[0]}: not part of the one-file launcher; it needs the installed package"
        ) from None
    code: int = command.main(words[1:], environ)
    return code


_GONE = dict.fromkeys(
    ("ft_launcher", "hyperpodrun"), "`muster torchrun` takes torchrun's options; docs/migration.md has a row for others"
)
"""Commands that there were, and what to use instead."""


def _meant(word: str) -> str:
    """What somebody meant who typed ``word`` in place of a command."""
    if os.path.isfile(word):
        return f", and {word} is a file: muster local {word} runs it here, muster launch {word} on hosts of a cluster"
    if word.startswith("-"):
        return f", and options stand behind one: muster launch {word} ..., or muster local {word} ..."
    if instead := _GONE.get(word.replace("-", "_")):
        return f": it is gone: {instead}"
    if instead := instead_of(word, "launch"):
        return f": {instead}, and `muster local` does so here"
    near = similar(word, COMMANDS, 0.6)
    return f" (did you mean {near}?)" if near else ""


def run_file(path: str) -> int:
    """Runs the command that the one-file launcher, ``path``, is named after; ``muster launch`` for any other name."""
    name = os.path.splitext(os.path.basename(path))[0]
    if name == "muster":
        return main()
    command = import_module(FILE_NAMES.get(name, COMMANDS["launch"].module))
    code: int = command.main() if name in WITHOUT_ARGUMENTS else command.main(sys.argv[1:])
    return code
