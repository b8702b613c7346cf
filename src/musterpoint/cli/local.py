"""``muster local``: run a job on N hosts of this machine."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Mapping, Sequence

from musterpoint.cli.errors import guarded
from musterpoint.cli.options import Command, Parser, add_options, given, one_of, split
from musterpoint.console import Console
from musterpoint.errors import UsageError
from musterpoint.job.sdk import framework_of, from_sdk
from musterpoint.local import backend, job
from musterpoint.local.run import Ground, run
from musterpoint.local.tree import Layout
from musterpoint.settings import BY_FIELD

ABOUT = "Run PROGRAM on N hosts of this machine, with the entry point they would have on the platform."
USAGE = "muster local [--hosts N] [options] [--] PROGRAM [ARGS...]"
EXAMPLES = """
examples:
  muster local --hosts 2 train.py --epochs 3
  muster local --hosts 2 --slots 4 --launcher ranks --channel train=data/ train.py
  muster local --hosts 2 --hyperparameters '{"train-script": "train_ddp.py"}' --cpu-fallback launcher.py
"""


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster local`` with ``argv`` (the words after the command); the job's exit code."""
    return guarded(lambda: _run(argv, environ))


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    flags = parser()
    command = split(flags, argv)
    asked = flags.parse_args(command.head)
    local_job = job_from(command, asked, os.getcwd(), environ)
    layout = Layout(_output(asked.output, local_job.name))
    made = backend.choose(asked.backend or "", layout, local_job.hosts, asked.one_address)
    description = run(local_job, Ground(layout, made, Console(), environ, out=2 if asked.json else 1))
    if asked.json:
        print(json.dumps(description, indent=1), flush=True)
    code: int = description["ExitCode"]
    return code


def parser(prog: str = "muster local", about: str = ABOUT, usage: str = USAGE) -> Parser:
    """The options of a local job, for ``muster local`` and for ``muster plan --hosts N``."""
    parser = Parser(prog, about, EXAMPLES.replace("muster local", prog), usage=usage)
    add = parser.add_argument
    add("--hosts", type=_count, default=1, metavar="N", help="how many hosts, algo-1 to algo-N [1]")
    add("--backend", **one_of("--backend", backend.BACKENDS),
        help="how hosts are made [netns where a namespace can really be made, else process]")  # fmt: skip
    add("--one-address", action="store_true", help="process backend: every host on 127.0.0.1, as on macOS")
    add("--source-dir", default="", metavar="DIR", help="the program's code [the directory of PROGRAM]")
    add("--hyperparameters", default="{}", metavar="JSON|FILE",
        help="the SDK's hyperparameters: a JSON object, or a file holding one [none]")  # fmt: skip
    add("--distribution", default="{}", metavar="JSON|FILE",
        help="""the SDK's distribution, such as '{"torch_distributed": {"enabled": true}}' [none]""")  # fmt: skip
    add("--channel", action="append", default=[], metavar="NAME=PATH", help="an input channel; may be repeated")
    add("--env", action="append", default=[], metavar="K=V", help="a variable of the job; may be repeated")
    add("--host-slots", default="", metavar="N,N", help="slots per host where hosts are uneven, such as 2,4")
    add("--cpu-fallback", action="store_true", help="run a CUDA-only script on this machine's CPU")
    add("--stop-after", type=_seconds, metavar="S", help="stop the job after S seconds, as StopTrainingJob does")
    add("--job-name", default="", metavar="NAME", help="the job's name [the program's name and the time]")
    add("--output", default="", metavar="DIR", help="where to put what the job leaves [./muster-jobs/<job>]")
    add("--json", action="store_true", help="the job description on stdout, logs on stderr")
    add("--platform", **one_of("--platform", ("sagemaker",)), default="sagemaker",
        help="whose control plane is played [sagemaker]")  # fmt: skip
    add_options(parser, leave_out=("platform",))
    return parser


def job_from(command: Command, asked: argparse.Namespace, cwd: str, environ: Mapping[str, str]) -> job.LocalJob:
    """The job that the command line asks for; a UsageError names the option that is wrong."""
    if command.module:
        raise UsageError(
            f"-m {command.program}: a training job's entry point is a file, or a package's directory; give its path, "
            "with --source-dir for the directory that Python shall import from"
        )
    if not command.program:
        raise UsageError("muster local: no PROGRAM given; expected `muster local [options] PROGRAM [ARGS...]`")
    distribution = job.read_json(asked.distribution, "--distribution", cwd)
    source_dir, program = job.find_program(command.program, asked.source_dir, cwd)
    options = {BY_FIELD[field].variable: str(value) for field, value in given(asked).items() if field != "platform"}
    return job.check(
        job.LocalJob(
            name=asked.job_name or job.name_for(program, time.time()),
            hosts=job.host_names(asked.hosts),
            program=program,
            source_dir=source_dir,
            arguments=command.arguments,
            hyperparameters=job.read_json(asked.hyperparameters, "--hyperparameters", cwd),
            distribution=from_sdk(distribution, framework_of(distribution)),
            channels=job.read_channels(asked.channel, cwd),
            options=options,
            host_slots=job.read_host_slots(asked.host_slots, asked.hosts) if asked.host_slots else (),
            environment=job.read_pairs(asked.env, "--env", "K=V with a variable's name before the =", job.VARIABLE),
            region=environ.get("AWS_REGION", ""),
            cpu_fallback=asked.cpu_fallback,
            stop_after=asked.stop_after,
        )
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--hosts={text!r}: expected a whole number, 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    seconds: float = BY_FIELD["stop_grace"].read(text, "--stop-after")
    return seconds


def _output(directory: str, name: str) -> str:
    """The job's directory, made and absolute; ``muster-jobs`` is kept out of git."""
    path = os.path.abspath(directory or os.path.join("muster-jobs", name))
    try:
        os.makedirs(path, exist_ok=True)
        if not directory:
            with open(os.path.join("muster-jobs", ".gitignore"), "w", encoding="utf-8") as file:
                file.write("*\n")
        used = os.listdir(path)
    except OSError as error:
        raise UsageError(f"--output={path}: the directory can't be used: {error.strerror}") from None
    if used:
        raise UsageError(f"--output={path}: there is something in it already; give a new directory")
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
