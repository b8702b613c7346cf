"""``muster serve interrupt|lose``: faults of a job that a running server has."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Callable, NamedTuple, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.cli.options import Parser


class Fault(NamedTuple):
    """A fault: what it does, and whether a host is named."""

    about: str
    of_host: bool = True


FAULTS = {
    "interrupt": Fault("take a spot job's instances back: SIGTERM, 120 s, another start with the checkpoint", False),
    "lose": Fault("take a host away at once, with everything on it"),
}


def parser(name: str, data: str) -> Parser:
    """The options of one fault; ``data`` is the default of ``--data``."""
    fault = FAULTS[name]
    words = "JOB HOST" if fault.of_host else "JOB"
    made = Parser(f"muster serve {name}", f"Of a job that runs: {fault.about}.", usage=f"muster serve {name} {words}")
    made.add_argument("job", metavar="JOB", help="the training job's name")
    if fault.of_host:
        made.add_argument("host", metavar="HOST", help="one of its hosts, such as algo-2")
    made.add_argument("--data", default=data, metavar="DIR", help=f"the server's directory [./{data}]")
    return made


def run(name: str, argv: Sequence[str], data: str, needs: Callable[[ModuleNotFoundError], UsageError]) -> int:
    """Makes the fault, and says what the job came to."""
    asked = parser(name, data).parse_args(argv)
    try:
        running = import_module("musterpoint.serve.running")
        api = import_module("musterpoint.serve.api")
    except ModuleNotFoundError as error:
        raise needs(error) from None
    parameters: dict[str, Any] = {"host": asked.host} if FAULTS[name].of_host else {}
    variables = running.read_running(os.path.abspath(asked.data))
    found = api.ControlClient(variables).ask(asked.job, name, parameters)
    print(f"{asked.job}: {found['SecondaryStatus']}", flush=True)
    return 0
