"""``muster torchrun``: torchrun's command line, carried out as ``muster launch`` does."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any, Mapping, NamedTuple, Sequence

from musterpoint.base.console import Console
from musterpoint.base.errors import UsageError
from musterpoint.base.readers import bracketed, split_endpoint
from musterpoint.base.settings import BY_FIELD
from musterpoint.base.spellings import OF_TORCHRUN, Typed
from musterpoint.cli import job
from musterpoint.cli.errors import guarded
from musterpoint.cli.options import OWN_PREFIX, Parser, add_options, given
from musterpoint.cli.plan import show, with_line
from musterpoint.cli.torchrun_flags import BY_SPELLING, FLAGS, CommandLine, Said, ignored_line, read_command_line, table
from musterpoint.core.fabric.devices import survey
from musterpoint.core.launch.launchers import instead_of, launching, of_program
from musterpoint.core.runtime import Request
from musterpoint.tools.plans.preview import preview_request

HELP = f"""usage: muster torchrun [torchrun's options] [{OWN_PREFIX}...] [--] PROGRAM [ARGS...]

torchrun's command line and PET_* variables; start it once per host, as torchrun. Every host learns of a failure or a
stop, and all end with the same exit code. Where the platform names the hosts (SageMaker, Slurm, ...) --nnodes,
--node-rank, --master-addr and the endpoint may be left out; what they say is compared with it.

torchrun's options, each with what it is here (most are also PET_* variables; --a-b may be spelled --a_b):
{{table}}

musterpoint's own options are {OWN_PREFIX}NAME here, such as {OWN_PREFIX}stop-grace 60, or MUSTER_* variables;
`muster launch --help` tells of them. {OWN_PREFIX}plan shows what this host would run, and starts nothing.

examples:
  muster torchrun --nproc-per-node 8 train.py --epochs 3
  muster torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint node-a:29400 train.py
  muster torchrun --nnodes 2 --node-rank 1 --master-addr node-a --nproc-per-node 4 -m package.train --lr 0.1
  MUSTER_SECRET=... muster torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint node-a:29400 train.py
"""
PLAN = OWN_PREFIX + "plan"
PASSED_ON = ("monitor_interval", "start_method", "event_log_handler", "role", "virtual_local_rank")
"""What the agent gets as ``PET_*`` variables."""
FOR_READERS = ("nnodes", "nproc_per_node", "node_rank", "master_addr", "master_port")
"""Variables by which platforms describe the hosts: they stay as they are."""
C10D_PORT = 29400
"""The port of a c10d endpoint that names none, as in torch's ``c10d_rendezvous_backend.py``."""


class Translated(NamedTuple):
    """The options that torchrun's flags stand for, by field; the environment; sentences for the log; and what of the
    command line is ignored, each with the reason.
    """

    given: dict[str, Any]
    environ: dict[str, str]
    notes: tuple[str, ...]
    ignored: tuple[tuple[str, str], ...]


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster torchrun`` with ``argv`` (the words after the command); the job's exit code."""
    return guarded(lambda: run(argv, environ), lambda failure: job.report(failure, environ))


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """``muster torchrun`` with ``argv``, without a guard for its errors."""
    own = own_parser()
    try:
        request, plans = _read(argv, environ, own)
    except UsageError as error:
        if PLAN in argv:
            raise
        return job.run_wrong(_readable_request(argv, environ, own), error)
    if request is None:
        print(HELP.format(table=table()), end="")
        sys.exit(0)
    if plans:
        preview = with_line(preview_request(request, job.read_line), request.line)
        preview = preview._replace(notes=(*request.notes, *preview.notes))
        show(preview, [preview.of(preview.job.current_host)[1]], environ)
        return 0
    for note in request.notes:
        Console(str).say(note)
    return job.run(request)


def read_line(argv: Sequence[str], environ: Mapping[str, str]) -> Request:
    """The request that ``argv`` is.

    Raises:
        UsageError: it is wrong, or asks for help or a plan.
    """
    request, plans = _read(argv, environ, own_parser())
    if request is None or plans:
        raise UsageError("muster torchrun: a job's program can't ask for help or a plan; expected a program to run")
    return request


def _read(argv: Sequence[str], environ: Mapping[str, str], own: Parser) -> tuple[Request | None, bool]:
    """The request that ``argv`` is, and whether its plan is asked for; None where help is."""
    command = _asks_for_help(argv, environ, _valued(own))
    if command is None:
        return None, False
    if not command.program:
        raise UsageError(
            "muster torchrun: no PROGRAM given; expected `muster torchrun [torchrun's options] PROGRAM [ARGS...]`"
        )
    asked = own.parse_args(command.own)
    translated = translate(command.said, environ, {**given(asked)})
    if translated.given.get("launcher") == "torchrun":
        _refuse_launcher(command, argv)
    notes = (*translated.notes, *ignored_line(translated.ignored))
    request = _request(command, translated)._replace(notes=notes)
    if "module" not in command.said:
        flags = {word: bool(flag.metavar) for word, flag in BY_SPELLING.items() if word in OF_TORCHRUN} | own.taken
        request = request._replace(line=Typed("muster torchrun", _head(command, argv), command.program, flags))
    return request, asked.plan


def _valued(own: Parser) -> dict[str, bool]:
    """Our own flags, and whether each takes a value."""
    return {flag: own.takes_value(flag) is not False for flag in own.flags}


def _asks_for_help(argv: Sequence[str], environ: Mapping[str, str], valued: Mapping[str, bool]) -> CommandLine | None:
    """The command line; None where it asks for help."""
    for at, word in enumerate(argv):
        if word in ("-h", "--help"):
            before = read_command_line((*argv[:at], "PROGRAM"), environ, valued)
            if before.program == "PROGRAM":
                return None
    return read_command_line(argv, environ, valued)


def _refuse_launcher(command: CommandLine, argv: Sequence[str]) -> None:
    """A UsageError where PROGRAM is a launcher's command, which would start ranks in each rank."""
    words = (*(("python", "-m") if "module" in command.said else ()), command.program, *command.arguments)
    name, own = launching(words), os.path.basename(command.program)
    if not name or of_program(own, command.program):  # a launcher's command line that is read as ours
        return
    if name in _SAME and own == name:
        instead = f"leave it out: {shlex.join(('muster', 'torchrun', *_head(command, argv), *command.arguments))}"
    else:
        script = f"{OWN_PREFIX}launcher script starts {name} itself, once per host"
        instead = f"it would be started once per rank: {instead_of(name, 'launch')}; {script}"
    raise UsageError(f"muster torchrun: PROGRAM is {name}, which starts ranks itself: {instead}")


def _head(command: CommandLine, argv: Sequence[str]) -> tuple[str, ...]:
    """The words of ``argv`` before the program, without those that say where or what it is."""
    head = list(argv[: len(argv) - len(command.arguments) - 1])
    while head and head[-1] in ("--", "-m", "--module"):
        head.pop()
    return tuple(head)


_SAME = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
"""Commands and modules with the flags that we read."""


def own_parser() -> Parser:
    """The parser of our options, which have a prefix here."""
    parser = Parser("muster torchrun", "", add_help=False)
    add_options(parser, prefix=OWN_PREFIX)
    parser.add_argument(PLAN, action="store_true", dest="plan")
    return parser


def parsers() -> tuple[Parser, ...]:
    """The options, for completion: torchrun's that are followed, and ours behind a prefix."""
    parser = Parser("muster torchrun", "")
    for flag in FLAGS:
        if flag.fate in ("honoured", "compared"):
            value: dict[str, Any] = {"metavar": flag.metavar} if flag.metavar else {"action": "store_true"}
            parser.add_argument(
                *flag.spellings, dest=f"torchrun_{flag.dest}", help=flag.help.replace("%", "%%"), **value
            )
    return parser, own_parser()


def _request(command: CommandLine, translated: Translated) -> Request:
    module = "module" in command.said
    return Request(translated.environ, translated.given, command.program, command.arguments, module, typed=True)


def _readable_request(argv: Sequence[str], environ: Mapping[str, str], own: Parser) -> Request | None:
    """What of a command line that is wrong says where the hosts meet; None: that can't be read.

    A line that isn't read whole is read without one of its flags, from the last one on, and that flag's value.
    """
    flags, valued = [at for at in reversed(range(len(argv))) if argv[at].startswith("-")], _valued(own)
    lines = (argv, *([*argv[:at], *argv[at + count :]] for at in flags for count in (2, 1)))
    for line in lines:
        try:
            command = read_command_line(line, environ, valued)
            options = {"launcher": "torchrun", **_hosts(command.said), **_meeting(command.said)}
            options.update(given(own.parse_args(command.own)))
        except UsageError:
            continue
        if command.program:
            return _request(command, Translated(options, dict(environ), (), ()))
    return None


def translate(said: Mapping[str, Said], environ: Mapping[str, str], own: dict[str, Any]) -> Translated:
    """torchrun's flags as options of musterpoint; ``own`` are those given as our flags, which go before.

    Raises:
        UsageError: a flag is refused, or its value is wrong.
    """
    _refuse(said)
    options: dict[str, Any] = {"launcher": "torchrun"}
    options.update(_slots(said, environ))
    options.update(_hosts(said))
    options.update(_ports_and_times(said))
    options.update(_output(said))
    if "max_restarts" in said:
        options["max_restarts"] = BY_FIELD["max_restarts"].read(*_told(said["max_restarts"]))
        if not environ.get("MUSTER_RESTART_ON"):  # torchrun starts its ranks again after any failure
            options["restart_on"] = "user"
    if "numa_binding" in said:
        options["numa_binding"] = BY_FIELD["numa_binding"].read(*_told(said["numa_binding"]))
    if environ.get("PYTHON_EXEC") and not environ.get("MUSTER_PYTHON"):
        options["python"] = environ["PYTHON_EXEC"]
    variables = {
        name: value
        for name, value in environ.items()
        if name.removeprefix("PET_").lower() not in _TRANSLATED or not name.startswith("PET_")
    }
    for name in PASSED_ON:
        if name in said:
            variables[f"PET_{name.upper()}"] = said[name].text
    # a MUSTER_* variable is the user's own word for it; torchrun's default is not
    if "nproc_per_node" not in said and environ.get("MUSTER_SLOTS"):
        del options["slots"]
    if environ.get("MUSTER_LAUNCHER"):
        del options["launcher"]
    return Translated({**options, **own}, variables, _notes(said), _ignored(said))


_TRANSLATED = frozenset(flag.dest for flag in FLAGS) - {*PASSED_ON, *FOR_READERS}


def _told(said: Said) -> tuple[str, str]:
    return said.text, f"muster torchrun: {said.source}"


def _refuse(said: Mapping[str, Said]) -> None:
    for flag in FLAGS:
        if flag.fate == "refused" and flag.dest in said:
            raise UsageError(f"muster torchrun: {said[flag.dest].source} is not followed: {flag.help}")
    if "module" in said and "no_python" in said:
        raise UsageError("muster torchrun: --module and --no-python exclude each other")
    if "monitor_interval" in said and not _is_number(said["monitor_interval"].text):
        said["monitor_interval"].wrong("expected a number of seconds")
    if "start_method" in said and said["start_method"].text not in ("spawn", "fork", "forkserver"):
        said["start_method"].wrong("expected spawn, fork or forkserver")


def _slots(said: Mapping[str, Said], environ: Mapping[str, str]) -> dict[str, int]:
    count = said.get("nproc_per_node")
    if count is None:
        return {"slots": 1}
    if count.text.isdecimal():
        return {"slots": BY_FIELD["slots"].read(*_told(count))}
    if count.text not in ("gpu", "cpu", "auto"):
        count.wrong("expected a number, 1 or more, or gpu, cpu or auto")
    devices = survey(environ)
    accelerators, _what = devices.accelerators
    if count.text == "gpu" and not devices.gpus and not devices.amd_gpus:
        count.wrong("no GPU can be seen on this host; expected a number, cpu or auto")
    return {"slots": accelerators if accelerators and count.text != "cpu" else devices.cpus}


def _hosts(said: Mapping[str, Said]) -> dict[str, Any]:
    """How many hosts there are, where they meet, and which one this is."""
    count, backend = said.get("nnodes"), said.get("rdzv_backend", Said("static", "--rdzv-backend"))
    if backend.text not in ("static", "c10d"):
        backend.wrong("expected static or c10d; the hosts meet in the roll call, which needs no other service")
    nnodes = None if count is None else _nnodes(count)
    if "standalone" in said:
        if nnodes is not None and nnodes > 1:
            raise UsageError(
                f"muster torchrun: {said['standalone'].source} is for one host, and {count and count.source} says "
                f"{nnodes}: leave one of them out"
            )
        return {"nnodes": 1, "master_port": 0}
    found: dict[str, Any] = {} if nnodes is None else {"nnodes": nnodes}
    static = backend.text == "static"
    rank = said.get("node_rank")
    if rank is not None and static:
        place = BY_FIELD["node_rank"].read(*_told(rank))
        if place or nnodes is not None:
            found["node_rank"] = place
    endpoint = said.get("rdzv_endpoint") or said.get("master_addr")
    if endpoint is not None and nnodes is not None and nnodes > 1:
        try:
            host, port = split_endpoint(endpoint.text)
        except ValueError as error:
            endpoint.wrong(str(error))
        written = bracketed(host)
        if static or "rdzv_endpoint" not in said:
            found["rollcall_leader"] = written
        else:
            found["rollcall_leader"] = f"{written}:{port or C10D_PORT}"
        if static and port:
            found["master_port"] = port
    return found


def _nnodes(count: Said) -> int:
    least, colon, most = count.text.partition(":")
    if colon and least.isdecimal() and most.isdecimal() and most != least:
        count.wrong("expected one number: hosts can't come and go while the job runs")
    nnodes: int = BY_FIELD["nnodes"].read(least if most == least else count.text, _told(count)[1])
    return nnodes


def _ports_and_times(said: Mapping[str, Said]) -> dict[str, Any]:
    found = _meeting(said)
    if "master_port" in said and "standalone" not in said:
        found["master_port"] = BY_FIELD["master_port"].read(*_told(said["master_port"]))
    if "shutdown_timeout" in said:
        found["stop_grace"] = float(_whole(said["shutdown_timeout"], 0))
    return found


def _meeting(said: Mapping[str, Said]) -> dict[str, Any]:
    """The job's name, and how long its hosts wait for each other."""
    found: dict[str, Any] = {}
    if "rdzv_id" in said:
        found["job_name"] = BY_FIELD["job_name"].read(*_told(said["rdzv_id"]))
    for key, value in _conf(said).items():
        if key in _DEADLINES:
            found["rollcall_timeout"] = BY_FIELD["rollcall_timeout"].read(value, f"{said['rdzv_conf'].source} {key}")
    return found


_DEADLINES = ("timeout", "join_timeout")


def _conf(said: Mapping[str, Said]) -> dict[str, str]:
    """``KEY=VALUE,...`` of --rdzv-conf."""
    conf = said.get("rdzv_conf")
    if conf is None:
        return {}
    pairs = [pair.strip().partition("=") for pair in conf.text.split(",") if pair.strip()]
    if not all(key and value for key, _, value in pairs):
        conf.wrong("expected KEY=VALUE,KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _output(said: Mapping[str, Said]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("redirects", "tee"):
        if name in said and not all(_is_stream(part) for part in said[name].text.split(",")):
            said[name].wrong("expected 0 to 3, or local ranks with them, such as 0:1,1:2")
    if "log_dir" in said:
        found["log_dir"] = said["log_dir"].text
    if "tee" in said and said["tee"].text != "0":
        found["log_prefix"] = "rank"
    ranks = said.get("local_ranks_filter")
    if ranks is not None:
        if not all(part.strip().isdecimal() for part in ranks.text.split(",")):
            ranks.wrong("expected local ranks separated by commas, such as 0,1")
        found["log_ranks"] = f"local:{ranks.text}"
    return found


def _is_stream(text: str) -> bool:
    rank, colon, what = text.strip().rpartition(":")
    return what in ("0", "1", "2", "3") and (not colon or rank.isdecimal())


def _ignored(said: Mapping[str, Said]) -> tuple[tuple[str, str], ...]:
    """What of the command line isn't followed, and why."""
    ignored = [(said[flag.dest].source, flag.help) for flag in FLAGS if flag.fate == "ignored" and flag.dest in said]
    if "node_rank" in said and said.get("rdzv_backend", Said("", "")).text == "c10d":
        ignored.append((said["node_rank"].source, "with c10d places go by arrival, as in torchrun"))
    if "master_port" in said and "standalone" in said:
        ignored.append((said["master_port"].source, f"{said['standalone'].source} takes any free port, as in torchrun"))
    for key in _conf(said):
        if key not in _DEADLINES:
            ignored.append((f"{key} of {said['rdzv_conf'].source}", "the roll call has its own options"))
    return tuple(ignored)


def _notes(said: Mapping[str, Said]) -> tuple[str, ...]:
    """What is otherwise than the command line says."""
    notes = []
    files = [said[name].source for name in ("redirects", "tee") if name in said and said[name].text != "0"]
    if files and "log_dir" not in said:
        notes.append(f"{' and '.join(files)}: no file is written, since --log-dir names no directory")
    if "redirects" in said and said["redirects"].text != "0":
        notes.append(f"{said['redirects'].source}: the output is shown all the same")
    return tuple(notes)


def _whole(said: Said, least: int) -> int:
    if not said.text.isdecimal() or len(said.text) > 9 or int(said.text) < least:
        said.wrong(f"expected a whole number, {least} or more")
    return int(said.text)


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False
