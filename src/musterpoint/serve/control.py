"""Requests to a running server beside AWS's API, by our own command and Python API. They are signed, too.

``CONTROLS`` names what is asked of a job: a function ``(record, parameters, context) -> response`` each.
"""

from __future__ import annotations

import glob
import os
import threading
import urllib.parse
from typing import Any, Callable, Mapping, Sequence

from musterpoint.local.job_status import OVER
from musterpoint.serve import training_request as requested
from musterpoint.serve.errors import ApiError, invalid
from musterpoint.serve.moto_services import Line
from musterpoint.serve.operations import Context
from musterpoint.serve.operations.training_jobs import described
from musterpoint.serve.state import INTERRUPT, LOSE, Record

Control = Callable[[Record, Mapping[str, Any], Context], Mapping[str, Any]]
SERVICE = "muster"
PATH, RESET = "/_muster/jobs/", "/_muster/reset"
_PATIENCE = 60.0
"""Seconds that a job's process gets to make a fault."""


def answer(context: Context, path: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer to a control at ``path``: ``/_muster/jobs/JOB/CONTROL``, or ``/_muster/reset``.

    Raises:
        ApiError: there is no such job or control, or it refuses.
    """
    if path == RESET:
        return reset(context)
    name, _, what = path.removeprefix(PATH).partition("/")
    name = urllib.parse.unquote(name)
    control = CONTROLS.get(what)
    if control is None:
        raise invalid(f"{what}: expected one of {', '.join(CONTROLS)}")
    record = context.state.by_arn(name) if name.startswith("arn:") else context.state.find(name)
    if record is None:
        raise invalid(f"there is no training job {name}")
    return control(record, parameters, context)


def reset(context: Context) -> Mapping[str, Any]:
    """Ends all jobs and forgets everything; the jobs' files stay."""
    context.state.clear()
    context.jobs.end_all()
    context.telemetry.clear()
    context.moto.reset()
    return {}


def wait(record: Record, parameters: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """Answers when the job is over, or in one of the wanted statuses."""
    wanted = parameters.get("status") or ()

    def reached(found: Record) -> bool:
        over = found.ended is not None
        if (over and not wanted) or found.status in wanted or _passed(found).intersection(wanted):
            return True
        if over:
            raise ApiError("Timeout", f"{found.name} is {found.status}, and never was {' or '.join(wanted)}", 408)
        return False

    return described(context.state.wait(record.name, reached, float(parameters.get("timeout", 600.0))))


def _passed(record: Record) -> set[str]:
    return {each["Status"] for each in record.facts.get("SecondaryStatusTransitions", ())}


def interrupt(record: Record, parameters: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """The spot market takes the instances back. SIGTERM, 120 s, and another start with the checkpoint."""
    if not requested.is_spot(record.request):
        raise invalid(f"{record.name} isn't a spot job: only EnableManagedSpotTraining jobs are interrupted")
    _order(record, {"order": INTERRUPT}, context)
    before = record.facts.get("_interruptions", 0)

    def interrupted(found: Record) -> bool:
        return found.facts.get("_interruptions", 0) > before or found.status in OVER

    return described(context.state.wait(record.name, interrupted, 2 * requested.GRACE + _PATIENCE))


def lose(record: Record, parameters: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """A host goes away at once, with everything on it."""
    host = parameters.get("host", "")
    hosts = requested.hosts(record.request)
    if host not in hosts:
        raise invalid(f"{record.name} has no host {host!r}: expected one of {', '.join(hosts)}")
    _order(record, {"order": LOSE, "host": host}, context)

    def lost(found: Record) -> bool:
        return host in found.facts.get("_lost", ()) or found.status in OVER

    return described(context.state.wait(record.name, lost, _PATIENCE))


def wait_for_output(record: Record, parameters: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """Answers when a host has written a line with ``text``."""
    text, seen = str(parameters.get("text", "")), threading.Event()

    def heard(name: str, lines: Sequence[Line]) -> None:
        if name == record.name and any(text in line.text for line in lines):
            seen.set()
            context.state.wake()

    def reached(found: Record) -> bool:
        if seen.is_set():
            return True
        if found.status in OVER:
            over = found.facts.get("FailureReason", found.status)
            raise ApiError("Timeout", f"{record.name} is over, and hasn't written {text!r}: {over}", 408)
        return False

    _, forget = context.telemetry.listen(heard)
    try:
        if not _has_written(context.settings.job_directory(record.name), text.encode()):
            context.state.wait(record.name, reached, float(parameters.get("timeout", 600.0)))
    finally:
        forget()
    return {}


def _has_written(folder: str, text: bytes) -> bool:
    """Tells whether a host's log has the text; lines are there before they are heard of."""
    for path in glob.glob(os.path.join(glob.escape(folder), "run-*", "hosts", "*", "log")):
        with open(path, "rb") as file:
            if any(text in line for line in file):
                return True
    return False


def _order(record: Record, order: Mapping[str, Any], context: Context) -> None:
    """Tells a job whose hosts run.

    Raises:
        ApiError: they don't.
    """
    if record.facts["SecondaryStatus"] != "Training" or not context.jobs.order(record.name, order):
        raise invalid(f"{record.name} is {record.facts['SecondaryStatus']}: its hosts don't run")


CONTROLS: Mapping[str, Control] = {
    "wait": wait,
    "wait-for-output": wait_for_output,
    "interrupt": interrupt,
    "lose": lose,
}
