"""``muster local``: run a job on N hosts of this machine."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
from typing import TYPE_CHECKING, Mapping, Sequence

from musterpoint.base.console import Console
from musterpoint.base.errors import UsageError
from musterpoint.base.posix import fcntl
from musterpoint.base.spellings import Typed
from musterpoint.cli.errors import guarded
from musterpoint.cli.local_command_line import job_from, parser, parsers, read_command
from musterpoint.cli.options import Parser, has_option, split, typed
from musterpoint.core.code.misplaced_options import behind_the_program
from musterpoint.core.code.project import LOCAL_JOBS
from musterpoint.core.job import directories
from musterpoint.local import job_request
from musterpoint.local.advice import elsewhere
from musterpoint.local.backend import choose_backend
from musterpoint.local.control_plane import RunContext, run
from musterpoint.local.output import MessageOutput
from musterpoint.local.tree import Layout
from musterpoint.local.unheeded import Given, without_effect

if TYPE_CHECKING:
    from musterpoint.base.failure import Failure
    from musterpoint.tools.plans.preview import Preview

__all__ = ["main", "parsers", "preview"]

_DEMO = os.path.join(os.path.dirname(job_request.__file__), "demo", "train.py")
DEMO = ("--hosts", "2", "--slots", "2", "--launcher", "ranks", "--backend", "process", _DEMO)
_TOLD = """
What you have seen:
   1. two hosts were made on this machine, with the files and variables that a platform gives its own
   2. each started musterpoint, and they met: nothing of the job starts before all are there
   3. each started two ranks, numbered 0 to 3, told where they meet
   4. the ranks elected one of them and summed up their numbers, over the network
   5. rank 3 raised an error, while the others waited for it
   6. all hosts ended at once, with the same exit code: nobody waits for a timeout
   7. the reason names the error, the rank, the host and the line, as a platform would show it
   8. {output} has each host's log, and outcome.json for programs
   9. muster report {output}   shows when what happened
  10. muster local --hosts 2 --slots 2 --launcher ranks YOUR.py   is the same with a script of yours
"""
_READER = 5.0
"""Seconds that a reader of our messages gets at the end for the rest."""


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster local`` with ``argv`` (the words after the command); the job's exit code."""
    return guarded(lambda: _run(argv, environ), lambda failure: _describe(failure, argv))


def _describe(failure: Failure, argv: Sequence[str]) -> None:
    """For programs: an error before there was a job, on stdout."""
    if has_option("--json", split(parser(), argv).head if _is_readable(argv) else argv):
        print(json.dumps({"Error": failure.reason.removeprefix("muster: "), "ExitCode": failure.code}), flush=True)


def _is_readable(argv: Sequence[str]) -> bool:
    try:
        split(parser(), argv)
    except UsageError:
        return False
    return True


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    command, asked = read_command(parser(), argv)
    if asked.demo:
        _check_demo(command.program, asked)
        command, asked = read_command(parser(), [*argv, *DEMO])
    local_job = job_from(command, asked, os.getcwd(), environ)
    layout = Layout(output_of(local_job, asked))
    said = f"--output={layout.output}" if asked.output else f"--job-name={local_job.name}"
    _check_output(layout.output, said)
    backend = choose_backend(asked.backend, layout, local_job, asked.one_address, asked.internet == "on")
    messages = MessageOutput(2)
    try:
        _make_output(layout, said, not asked.output)
        console = Console(job_request.masker_of(local_job, environ).mask, messages.write)
        for text in unheeded(local_job, asked, backend.name, typed(parser(), command)):
            console.say(text)
        description = run(
            local_job,
            RunContext(
                layout,
                backend,
                console,
                environ,
                out=2 if asked.json else 1,
                live=asked.live == "auto",
                cwd=os.getcwd(),
            ),
        )
    finally:
        backend.close()
        messages.close(_READER)
    if asked.json:
        output = MessageOutput(1)
        output.write((json.dumps(description, indent=1) + "\n").encode())
        output.close(_READER)
    code: int = description["ExitCode"]
    if asked.demo and not asked.json:
        told = code == 1 and "told to fail" in description.get("FailureReason", "")
        print(_TOLD.format(output=os.path.relpath(layout.output)) if told else "", end="", flush=True)
        return 0 if told else code or 1
    return code


def _check_demo(program: str, asked: argparse.Namespace) -> None:
    """Refuses what would change the demo, which is one job only.

    Raises:
        UsageError: a program or an option is given that isn't about where the job's files go and how it is shown.
    """
    usual = parser().parse_args([])
    given = [name for name, value in vars(asked).items() if value != getattr(usual, name, None)]
    others = [f"--{name.replace('_', '-')}" for name in given if name not in ("demo", "json", "output", "live")]
    if program or others:
        what = " and ".join(([program] if program else []) + others)
        raise UsageError(f"muster local --demo is a job of its own, without {what}: leave out one of them")


def unheeded(local_job: job_request.LocalJob, asked: argparse.Namespace, backend: str, line: Typed | None) -> list[str]:
    """Warnings of options that have no effect for this job, and of words that seem to mean something else."""
    internet = asked.internet == "on"
    given = Given(local_job, backend, asked.host_names, asked.one_address, asked.requirements or "", internet)
    said = without_effect(given)
    if line is not None:
        program = os.path.join(local_job.source_dir, local_job.program)
        said += behind_the_program(program, local_job.arguments, line)
    return said + elsewhere(local_job, os.getcwd())


def output_of(local_job: job_request.LocalJob, asked: argparse.Namespace) -> str:
    """The directory for what the job leaves."""
    return os.path.abspath(asked.output or os.path.join(LOCAL_JOBS, local_job.name))


def _check_output(path: str, said: str) -> None:
    """Refuses a directory that already has files in it. ``said``: the option that names it."""
    try:
        used = os.listdir(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{said}: {path} can't be used: {error.strerror}") from None
    if used:
        raise _used(path, said)


def _used(path: str, said: str) -> UsageError:
    """The error where ``path`` is another job's, or a file."""
    flag = said.partition("=")[0]
    if directories.in_use(path):
        return UsageError(f"{said}: a job that still runs has {path}; give another {flag}, or wait for its end")
    if os.path.isdir(os.path.join(path, "hosts")):
        again = f"give another {flag}, or remove what it left (rm -r {shlex.quote(path)})"
        return UsageError(f"{said}: a job that is over has left {path}; {again}")
    return UsageError(f"{said}: there is something in {path} already; give another {flag}")


def _make_output(layout: Layout, said: str, ours: bool) -> None:
    """Makes the job's directory. ``ours``: it is in our default folder, which is then excluded from git."""
    path = layout.output
    try:
        os.makedirs(path, exist_ok=True)
        with contextlib.suppress(OSError):  # a disk without locks
            # until this process ends: a `muster launch` may be given the same name
            if not directories.lock({path: fcntl.LOCK_EX}):
                raise _used(path, said)
        os.mkdir(layout.hosts)
        if ours:
            with open(os.path.join(os.path.dirname(path), ".gitignore"), "w", encoding="utf-8") as file:
                file.write("*\n")
    except FileExistsError:  # another job that began at the same time, or a file
        raise _used(path, said) from None
    except OSError as error:
        raise UsageError(f"{said}: {path} can't be made: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


def preview(flags: Parser, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[Preview, argparse.Namespace]:
    """The plans of the local job that ``argv`` asks for, for ``muster plan --hosts N``, and the options as read by
    ``flags``.
    """
    from musterpoint.cli.job import read_line
    from musterpoint.local.local_preview import preview_local  # 20 ms, for plans

    command, asked = read_command(flags, argv)
    job = job_from(command, asked, os.getcwd(), environ, flags.prog)
    backend, made = preview_local(
        job, output_of(job, asked), environ, asked.backend, asked.one_address, asked.internet == "on", read_line
    )
    return made._replace(notes=(*made.notes, *unheeded(job, asked, backend, typed(flags, command)))), asked
