"""``muster serve``: SageMaker's training API on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import Any, Mapping, NamedTuple, Sequence

from musterpoint.base.errors import UsageError, similar
from musterpoint.cli.errors import guarded
from musterpoint.cli.options import Parser, one_of
from musterpoint.serve.settings import BACKENDS, GPUS, PORT, REGION, Settings

ABOUT = "Answer SageMaker's training API on this machine: a job that is created there really runs, on as many hosts."
USAGE = """muster serve [--port P] [--backend process|netns|docker] [--image URI=LOCAL ...] [--data DIR]
       muster serve interrupt JOB | lose JOB HOST"""
EXAMPLES = """
Unmodified clients (boto3, the AWS CLI, the SageMaker SDK) need only what it prints: AWS_ENDPOINT_URL, a region, and
credentials made for this server. S3, IAM, STS and CloudWatch are moto's, at the same address.

examples:
  muster serve                                           then, elsewhere: eval "$(muster serve --export)"
  muster serve --backend netns --max-jobs 4              every host a network namespace (Linux, root)
  muster serve lose my-job algo-2                        a fault of a job that runs, beside the running server
  muster serve --backend docker --image 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.5=my-image
"""
_NEEDS = ("moto", "flask", "flask_cors", "boto3", "botocore", "werkzeug")
DATA = "muster-serve"


class Fault(NamedTuple):
    """A fault: what it does, and whether a host is named."""

    about: str
    of_host: bool = True


FAULTS = {
    "interrupt": Fault("take a spot job's instances back: SIGTERM, 120 s, another start with the checkpoint", False),
    "lose": Fault("take a host away at once, with everything on it"),
}


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster serve`` with ``argv`` (the words after the command)."""
    return guarded(lambda: _run(argv, environ))


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return (_parser(), *(_fault_parser(name) for name in FAULTS))


def _parser() -> Parser:
    parser = Parser("muster serve", ABOUT, EXAMPLES, usage=USAGE)
    add = parser.add_argument
    add("--port", type=_port, default=PORT, metavar="P", help=f"where it listens; 0 takes a free port [{PORT}]")
    add(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="the address it listens on; any other than loopback lets others of your network run programs here who "
        "know the credentials [127.0.0.1]",
    )
    add("--backend", **one_of("--backend", BACKENDS), default="process", help="how hosts of jobs are made [process]")
    add(
        "--image",
        action="append",
        default=[],
        metavar="URI=LOCAL",
        help="docker backend: the image of this machine that stands for a TrainingImage; may be repeated",
    )
    add("--data", default=DATA, metavar="DIR", help=f"where what jobs leave lies [./{DATA}]")
    add("--region", default="", metavar="NAME", help=f"the region it is [AWS_REGION, else {REGION}]")
    add("--max-jobs", type=_count, default=0, metavar="N", help="jobs that run at once; others wait [one per 2 cores]")
    add(
        "--gpus",
        **one_of("--gpus", GPUS),
        default="real",
        help="whether a job sees this machine's GPUs, or as many as its instance type has [real]",
    )
    add("--end-with-stdin", action="store_true", help="end when stdin ends, as with the program that started it")
    add("--export", action="store_true", help="start nothing: print what a shell has to export for the running server")
    return parser


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    if argv and argv[0] in FAULTS:
        return _run_fault(argv[0], argv[1:])
    if argv and not argv[0].startswith("-"):
        near = similar(argv[0], FAULTS)
        meant = f"did you mean {near}?" if near else f"expected {' or '.join(FAULTS)}, or an option"
        raise UsageError(f"muster serve: unexpected argument {argv[0]!r} ({meant}); see `muster serve --help`")
    asked = _parser().parse_args(argv)
    settings = _settings(asked, environ)
    try:
        server = import_module("musterpoint.serve.server")
        running = import_module("musterpoint.serve.running")
    except ModuleNotFoundError as error:
        raise _without(error) from None
    if asked.export:
        print(running.exports(running.read_running(settings.data)), end="")
        return 0
    code: int = server.main(settings, running.say_ready)
    return code


def _fault_parser(name: str) -> Parser:
    """The options of one fault."""
    fault = FAULTS[name]
    words = "JOB HOST" if fault.of_host else "JOB"
    made = Parser(f"muster serve {name}", f"Of a job that runs: {fault.about}.", usage=f"muster serve {name} {words}")
    made.add_argument("job", metavar="JOB", help="the training job's name")
    if fault.of_host:
        made.add_argument("host", metavar="HOST", help="one of its hosts, such as algo-2")
    made.add_argument("--data", default=DATA, metavar="DIR", help=f"the server's directory [./{DATA}]")
    return made


def _run_fault(name: str, argv: Sequence[str]) -> int:
    """Makes the fault, and says what the job came to."""
    asked = _fault_parser(name).parse_args(argv)
    try:
        running = import_module("musterpoint.serve.running")
        api = import_module("musterpoint.serve.api")
    except ModuleNotFoundError as error:
        raise _without(error) from None
    parameters: dict[str, Any] = {"host": asked.host} if FAULTS[name].of_host else {}
    variables = running.read_running(os.path.abspath(asked.data))
    found = api.ControlClient(variables).ask(asked.job, name, parameters)
    print(f"{asked.job}: {found['SecondaryStatus']}", flush=True)
    return 0


def _without(error: ModuleNotFoundError) -> UsageError:
    """The error where a package isn't there that only this command needs; any other is raised as it is."""
    if (error.name or "").partition(".")[0] not in _NEEDS:
        raise error
    return UsageError(
        f"muster serve needs {error.name}, which this Python doesn't have: {sys.executable} -m pip install "
        "'musterpoint[serve]'"
    )


def _settings(asked: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    images = {}
    for text in asked.image:
        uri, equals, local = text.rpartition("=")
        if not (equals and uri and local):
            raise UsageError(f"--image={text!r}: expected URI=LOCAL, such as 1234.dkr.ecr.us-east-1.amazonaws.com/a=a")
        images[uri] = local
    if images and asked.backend != "docker":
        raise UsageError(f"--image: --backend {asked.backend} starts no images; add --backend docker, or leave it out")
    return Settings(
        data=os.path.abspath(asked.data),
        host=asked.host,
        port=asked.port,
        backend=asked.backend,
        images=images,
        region=asked.region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or REGION,
        max_jobs=asked.max_jobs or max(1, (os.cpu_count() or 1) // 2),
        gpus=asked.gpus,
        end_with_stdin=asked.end_with_stdin,
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"--port={text!r}: expected a number up to 65535; 0 takes a free port")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1000:
        raise UsageError(f"--max-jobs={text!r}: expected a number from 1")
    return int(text)
