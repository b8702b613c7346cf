"""The options of ``muster local``, also for ``muster plan --hosts N``, and the job that they ask for."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import time
from typing import Any, Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import BY_FIELD, from_environ, variable_of
from musterpoint.cli.options import Command, Parser, add_options, given, one_of, split
from musterpoint.core.job import platforms
from musterpoint.core.launch.launchers import instead_of, of_program
from musterpoint.local import job_request
from musterpoint.local.host_environment import host_environment
from musterpoint.local.job_file import read_job_file
from musterpoint.local.local_roles import hosts_of, roles_by_host
from musterpoint.local.metric_points import read_metrics
from musterpoint.local.options import LOCAL, LocalOption
from musterpoint.local.platforms import played
from musterpoint.local.typed_paths import typed_path

ABOUT = "Run PROGRAM on N hosts of this machine, with the entry point they would have on the platform."
USAGE = """muster local [--hosts N] [options] [--] PROGRAM [ARGS...]
       muster local [--hosts N] [options] -m MODULE [ARGS...]
       muster local --demo"""
EXAMPLES = """
examples:
  muster local --demo
  muster local --hosts 2 train.py --epochs 3
  muster local --hosts 2 --slots 4 --launcher ranks --channel train=data/ train.py
  muster local --hosts 2 --image my-image train.py
  muster local -f job.toml
  muster local --hosts 2 --hyperparameters '{"train-script": "train_ddp.py"}' --cpu-fallback launcher.py
"""


def read_command(flags: Parser, argv: Sequence[str]) -> tuple[Command, argparse.Namespace]:
    """The command line, behind what the file of ``-f`` says."""
    command = split(flags, argv)
    asked = flags.parse_args(command.head)
    if not asked.file:
        return command, asked
    file = read_job_file(asked.file, flags_taken(flags))
    try:
        flags.parse_args(file.options)
    except UsageError as error:
        raise UsageError(f"-f {asked.file}: {error}") from None
    asked = flags.parse_args((*file.options, *command.head))
    asked.roles = file.roles
    if file.roles is not None:
        asked.source_dir = asked.source_dir or file.roles.folder
    if not command.program:
        command = command._replace(program=file.program, arguments=file.arguments, module=file.module)
    return command, asked


def flags_taken(flags: Parser | None = None) -> dict[str, bool]:
    """Every flag, and whether it takes a value; without those about the command line itself."""
    return (flags or parser()).taken


def parser(prog: str = "muster local", about: str = ABOUT, usage: str = USAGE, examples: str = EXAMPLES) -> Parser:
    """The options of a local job, for ``muster local`` and for ``muster plan --hosts N``."""
    parser = Parser(prog, about, examples, usage=usage)
    add = parser.add_argument
    add(
        "-f",
        dest="file",
        default="",
        metavar="FILE",
        help="a file with options by their names, program and arguments: TOML, or .json",
    )
    add(
        "--demo", action="store_true", help="no PROGRAM: four ranks on two hosts, one of which fails, and what one sees"
    )
    add("--json", action="store_true", help="the job description on stdout, logs on stderr")
    each_is_one = "with --image, every host is one, in a network of their own"
    containers = parser.add_argument_group("containers", each_is_one)
    for option in LOCAL:
        _add(containers if option.in_containers else parser, option)
    add_options(
        parser, leave_out=("rollcall_leader", "nnodes", "node_rank", "job_file", *(option.name for option in LOCAL))
    )
    return parser


def _add(group: Any, option: LocalOption) -> None:
    """Adds an option to a parser, or to a group of its help."""
    kept = {"dest": option.dest or option.name, "help": option.help, "default": option.default}
    if option.is_switch:
        group.add_argument(option.flag, action="store_true", dest=kept["dest"], help=option.help)
    elif choices := option.choices:
        read = option.parse if option.names else None
        group.add_argument(option.flag, **one_of(option.flag, choices, read), **kept)
    else:
        action = "append" if option.repeats else "store"
        group.add_argument(option.flag, type=option.parse, metavar=option.metavar, action=action, **kept)


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return (parser(),)


def job_from(
    command: Command, asked: argparse.Namespace, cwd: str, environ: Mapping[str, str], prog: str = "muster local"
) -> job_request.LocalJob:
    """The job that the command line of ``prog`` and its file ask for; a UsageError names the option that is wrong."""
    if not command.program and getattr(asked, "roles", None) is not None:
        raise UsageError(f"{asked.roles.place(0, 'name')}: no role names a program, nor does the file above them")
    if not command.program:
        raise UsageError(f"{prog}: no PROGRAM given; expected `{prog} [options] PROGRAM [ARGS...]`")
    try:
        made = _job_from(command, asked, cwd, environ)
    except UsageError as error:
        told = not asked.file or str(error).startswith(f"-f {asked.file}")
        where = "" if told else f" (in {asked.file}, or on the command line)"
        raise UsageError(f"{error}{where}") from None
    from_environ(host_environment(made, made.hosts[0], environ, {}, {}))  # what each host would refuse
    return made


def _job_from(
    command: Command, asked: argparse.Namespace, cwd: str, environ: Mapping[str, str]
) -> job_request.LocalJob:
    platform = played(asked.platform)
    if not command.module:
        job_request.refuse_notebook(command.program)
    if getattr(asked, "python", "") and not asked.image:
        job_request.find_python(asked.python, environ, cwd)
    source_dir, program = _program(command, asked, cwd)
    made = _container(asked, cwd)
    distribution = job_request.read_json(asked.distribution, "--distribution", cwd)
    options = {variable_of(field): str(value) for field, value in given(asked).items() if field != "platform"}
    roles = getattr(asked, "roles", None)
    if roles is not None:
        options[variable_of("job_file")] = json.dumps({"roles": roles.values["roles"]})
    hosts = hosts_of(asked.hosts, asked.groups, roles, options.get(variable_of("more_roles"), ""))
    options = {name: typed_path(name, value, cwd, source_dir, made is not None) for name, value in options.items()}
    if asked.requirements:
        options.pop(BY_FIELD["requirements"].variable)
        if made is None:
            found = job_request.find_file(asked.requirements, "--requirements", cwd)
            options = {"MUSTER_INSTALLER": "pip", **options, BY_FIELD["requirements"].variable: found}
    fetched = job_request.fetched_channels(asked.inputs, cwd)
    channels = job_request.read_channels([text for text in asked.inputs if text not in fetched], cwd)
    options.update({BY_FIELD["channel"].variable: "\n".join(fetched.values())} if fetched else {})
    checked = job_request.check_job(
        job_request.LocalJob(
            name=asked.name_of_job or job_request.name_for(program, time.time()),
            hosts=platform.host_names(hosts, asked.host_names),
            program=program,
            source_dir=source_dir,
            arguments=command.arguments,
            hyperparameters=job_request.read_json(asked.hyperparameters, "--hyperparameters", cwd),
            distribution=platform.read_distribution(distribution, hosts),
            channels=channels,
            sharded=job_request.read_sharded(asked.sharded, channels),
            options=options,
            host_slots=job_request.read_host_slots(asked.host_slots, hosts) if asked.host_slots else (),
            environment=job_request.read_pairs(
                [_with_value(text, environ) for text in asked.env],
                "--env",
                "K=V with a variable's name before the =, or the name of one that is set here",
                job_request.VARIABLE,
            ),
            region=environ.get("AWS_REGION", ""),
            cpu_fallback=asked.cpu_fallback,
            debug=_debugged(asked),
            stop_after=asked.stop_after,
            container=made,
            grace=platform.grace,
            platform=asked.platform,
            module=command.module,
            metrics=read_metrics(asked.metric),
            groups=asked.groups,
        )
    )
    checked = checked._replace(role_of=roles_by_host(checked, roles))
    platform.check(checked)
    return checked


_PYTHON = re.compile(r"python[\d.]*")


def _program(command: Command, asked: argparse.Namespace, cwd: str) -> tuple[str, str]:
    """The source directory (absolute), and the program: a file in it, a launcher's own command line, or on platforms
    that run commands any other.
    """
    runs_commands = platforms.load(asked.platform).own_program is None
    if runs_commands and asked.image:
        raise UsageError(
            f"--platform {asked.platform}: the hosts of --image are started as SageMaker starts containers; leave one "
            "of the two out, or play the platform inside the image: docker run --rm --volume "
            f'"$PWD":/code --workdir /code {asked.image} muster local --platform {asked.platform} ...'
        )
    on_path = "/" not in command.program and bool(shutil.which(command.program))
    is_command = bool(of_program(command.program))
    if runs_commands:
        is_command |= on_path or bool(instead_of(command.program, "launch"))
    elif not asked.image:  # a console script; a launcher or a Python before the script is told of below
        is_command |= on_path and not (instead_of(command.program, "local") or _PYTHON.fullmatch(command.program))
    if command.module or (is_command and not os.path.exists(os.path.join(cwd, asked.source_dir, command.program))):
        return job_request.find_directory(asked.source_dir, cwd), command.program
    return job_request.find_program(command.program, asked.source_dir, cwd)


def _container(asked: argparse.Namespace, cwd: str) -> job_request.Container | None:
    """The containers to use as hosts; None without --image. A UsageError where options don't fit together."""
    only = {
        "--shm-size": asked.shm_size,
        "--memory": asked.memory,
        "--cpus": asked.cpus,
        "--gpus": asked.gpus,
        "--network-isolation": asked.network_isolation,
    }
    if not asked.image:
        if asked.backend == "docker":
            raise UsageError("--backend docker: which image? Add --image IMAGE")
        for flag, value in only.items():
            if value:
                raise UsageError(f"{flag} is for hosts that are containers: add --image IMAGE, or leave it out")
        return None
    if asked.backend not in (None, "docker"):
        raise UsageError(f"--backend {asked.backend}: --image is for --backend docker; leave one of them out")
    if asked.internet == "on" and asked.network_isolation:
        raise UsageError("--internet on: --network-isolation gives the hosts no way out; leave one of the two out")
    if asked.one_address:
        raise UsageError("--one-address is for --backend process; containers have addresses of their own")
    return job_request.Container(
        image=asked.image,
        shm_size=job_request.read_size(asked.shm_size, "--shm-size") if asked.shm_size else job_request.SHM_SIZE,
        memory=job_request.read_size(asked.memory, "--memory", job_request.SMALLEST_MEMORY) if asked.memory else 0,
        cpus=job_request.read_cpus(asked.cpus) if asked.cpus else 0.0,
        gpus=job_request.read_gpus(asked.gpus or "auto"),
        isolated=asked.network_isolation,
        requirements=job_request.find_file(asked.requirements, "--requirements", cwd) if asked.requirements else "",
    )


def _with_value(text: str, environ: Mapping[str, str]) -> str:
    """``K`` as ``K=V`` where such a variable is set here, so that a secret needn't be on the command line."""
    return f"{text}={environ[text]}" if text in environ else text


def _debugged(asked: argparse.Namespace) -> int | None:
    """The rank of ``--debug``. A UsageError where it can't have a terminal, or a limit would end its session."""
    rank: int | None = asked.debug
    limits = {"--stop-after": asked.stop_after, "--stall-timeout": getattr(asked, "stall_timeout", None)}
    for flag, value in {"--image": asked.image, "--json": asked.json, **limits}.items():
        if rank is not None and value:
            raise UsageError(f"--debug {rank}: {flag} doesn't go with it; leave one of the two out")
    return rank
