"""``muster env``: the variables a script of this job sees on this host."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from typing import Callable, Mapping, NamedTuple, Sequence

from musterpoint.base.console import Console
from musterpoint.base.masking import Masker
from musterpoint.base.untrusted import escaped
from musterpoint.cli.errors import guarded
from musterpoint.cli.job import read_line
from musterpoint.cli.options import Parser, add_options, one_of, read_request
from musterpoint.core.code.misplaced_options import behind_the_program
from musterpoint.core.fabric.devices import survey
from musterpoint.core.ignored_options import unknown_variables
from musterpoint.core.job import platforms
from musterpoint.core.job.opt_ml import base_of
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.rollcall.roster import Roster
from musterpoint.tools.plans.preview import endings, preview_request

EXAMPLES = """
text is for reading and hides secrets; the others are for programs and don't. export leaves out names that
no shell can hold: SM_HP_BATCH-SIZE is there as SM_HP_BATCH_SIZE.

examples:
  muster env                                              a table
  eval "$(muster env --format export)"                    this shell, as a script would find it
  eval "$(muster env --format pet)"; torchrun train.py    torchrun's own variables
  muster env --format accelerate > config.yaml; accelerate launch --config_file config.yaml train.py
  muster env --format hostfile > hostfile                 host slots=N, for mpirun and deepspeed
"""


SHELL_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Scope(NamedTuple):
    """The data that a format prints: this host's plan, its roster, and the variables."""

    plan: LaunchPlan
    roster: Roster
    variables: dict[str, str]
    masker: Masker
    gpus: int


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster env`` with ``argv`` (the words after the command)."""
    return guarded(lambda: _run(argv, environ))


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    request, asked = read_request(_parser, argv, environ)
    said = []
    if request.program is None and not platforms.here(environ, base_of(environ)).describes:
        said.append("no PROGRAM was given, and no job is here: a program that is started alone sees these variables")
        request = request._replace(program=sys.executable, typed=True)
    elif request.program is not None and request.line is not None:
        said += behind_the_program(request.program, request.arguments or (), request.line)
    preview = preview_request(request, read_line)
    roster, plan = preview.of(preview.job.current_host)
    scope = Scope(plan, roster, _variables(plan), preview.masker(environ), survey(environ).gpus)
    for text in (*unknown_variables(environ), *said, *endings(preview.lacks)):
        Console(scope.masker.mask).say(text)
    sys.stdout.write(FORMATS[asked.format](scope))
    sys.stdout.flush()
    return 0


def _variables(plan: LaunchPlan) -> dict[str, str]:
    """The variables that the plan sets for this host's first rank, by name; without those that torchrun sets."""
    settings = (*plan.environment, *(plan.processes[0].environment if plan.processes else ()))
    variables = {setting.name: setting.value for setting in settings}
    if plan.user_pythonpath:
        variables["PYTHONPATH"] = plan.user_pythonpath
    return dict(sorted(variables.items()))


def _text(scope: Scope) -> str:
    masked = ((name, scope.masker.mask_value(name, value)) for name, value in scope.variables.items())
    return "".join(f"{escaped(name)}={escaped(value)}\n" for name, value in masked)


def _json(scope: Scope) -> str:
    return json.dumps(scope.variables, indent=1) + "\n"


def _export(scope: Scope) -> str:
    return _exports(scope.variables)


def _pet(scope: Scope) -> str:
    """torchrun's variables: each of its flags reads ``PET_<FLAG>``."""
    roster = scope.roster
    return _exports(
        {
            "PET_NNODES": str(len(roster.group)),
            "PET_NPROC_PER_NODE": str(roster.seat.slots),
            "PET_NODE_RANK": str(max(roster.node_rank, 0)),
            "PET_MASTER_ADDR": roster.master_address,
            "PET_MASTER_PORT": str(roster.master_port),
        }
    )


def _accelerate(scope: Scope) -> str:
    """A configuration file of accelerate's (``default_config.yaml``)."""
    roster = scope.roster
    lines = {
        "compute_environment": "LOCAL_MACHINE",
        # MULTI_CPU would start a single process
        "distributed_type": "MULTI_GPU" if roster.world_size > 1 else "NO",
        "num_machines": len(roster.group),
        "num_processes": roster.world_size,
        "machine_rank": max(roster.node_rank, 0),
        "main_process_ip": roster.master_address,
        "main_process_port": roster.master_port,
        "rdzv_backend": "static",
        "same_network": "true",
    }
    text = "".join(f"{key}: {value}\n" for key, value in lines.items())
    if not scope.gpus and roster.world_size > 1:
        text = "# no GPU here: set ACCELERATE_USE_CPU=true for the ranks to meet on the CPU\n" + text
    return text


def _hostfile(scope: Scope) -> str:
    return "".join(f"{seat.name} slots={seat.slots}\n" for seat in scope.roster.group)


def _exports(variables: Mapping[str, str]) -> str:
    """Shell text that is safe to ``eval``. Names that no shell allows are left out: the shell would run them."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in variables.items() if SHELL_NAME.fullmatch(name)
    )


FORMATS: dict[str, Callable[[Scope], str]] = {
    "text": _text,
    "json": _json,
    "export": _export,
    "pet": _pet,
    "accelerate": _accelerate,
    "hostfile": _hostfile,
}


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return (_parser("--"),)


def _parser(prefix: str) -> Parser:
    parser = Parser(
        "muster env",
        "Print the SM_* and framework variables a script of this job sees on this host.",
        EXAMPLES,
        usage="muster env [--format FORMAT] [options] [--] [PROGRAM [ARGS...]]",
    )
    parser.add_argument(
        prefix + "format",
        dest="format",
        **one_of(prefix + "format", tuple(FORMATS)),
        default="text",
        help="how to write them [text]",
    )
    add_options(parser, prefix=prefix)
    return parser
