"""What a running server is asked for beside AWS's API, by our own command and Python API; signed as every call is.

``CONTROLS`` names them all: a function ``(record, parameters, context) -> response`` each.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import urllib.parse
from typing import Any, Callable, Mapping

from musterpoint.serve import training_request as requested
from musterpoint.serve.context import Context
from musterpoint.serve.errors import ApiError, invalid
from musterpoint.serve.following import Followed
from musterpoint.serve.fork_server import LOG
from musterpoint.serve.job_keys import PROCESSING, key_of
from musterpoint.serve.job_run import INTERRUPT
from musterpoint.serve.operations import executions, processing_jobs, tuning_jobs
from musterpoint.serve.operations.training_jobs import described
from musterpoint.serve.state import Record
from musterpoint.serve.transitions import KIND, OVER

Control = Callable[[Record, Mapping[str, Any], Context], Mapping[str, Any]]
SERVICE = "muster"
PATH = "/_muster/jobs/"
_PATIENCE = 60.0
"""Seconds that a job's process gets to make a fault."""


def answer(context: Context, path: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer to a control at ``path``: ``/_muster/jobs/JOB/CONTROL``.

    Raises:
        ApiError: there is no such job or control, or it refuses.
    """
    name, _, what = path.removeprefix(PATH).partition("/")
    name = urllib.parse.unquote(name)
    control = CONTROLS.get(what)
    if control is None:
        raise invalid(f"{what}: expected one of {', '.join(CONTROLS)}")
    record = context.state.by_arn(name) if name.startswith("arn:") else context.state.find(KIND, name)
    if record is None:
        raise invalid(f"there is no training job {name}")
    if record.kind != KIND and control is not wait:
        raise invalid(f"{what}: expected a training job, and {record.arn} is none")
    return control(record, parameters, context)


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

    if record.kind not in DESCRIBED:
        raise invalid(f"{record.arn}: expected something that ends")
    found = await_change(record, reached, float(parameters.get("timeout", 600.0)), context)
    return DESCRIBED[record.kind](context, found)


def await_change(record: Record, reached: Callable[[Record], bool], timeout: float, context: Context) -> Record:
    """What ``record`` is once ``reached`` holds of it; asked whenever it has changed.

    Raises:
        ApiError: that takes longer than ``timeout`` seconds.
    """
    changed = threading.Event()
    kind, name = record.kind, record.name
    key = key_of(kind, name)
    forget = context.notices.listen(lambda changes: changed.set() if changes == key else None)
    until = time.monotonic() + timeout
    try:
        while True:
            changed.clear()
            found = context.state.find(kind, name)
            if found is None:
                raise invalid(f"{record.arn} has been deleted")
            if reached(found):
                return found
            if not changed.wait(max(0.0, until - time.monotonic())):
                raise ApiError("Timeout", f"{name} is still {found.facts.get('SecondaryStatus', found.status)}", 408)
    finally:
        forget()


def _passed(record: Record) -> set[str]:
    return {each["Status"] for each in record.facts.get("SecondaryStatusTransitions", ())}


def interrupt(record: Record, parameters: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """The spot market takes the instances back: SIGTERM, 120 s, and another start with the checkpoint."""
    if not requested.is_spot(record.request):
        raise invalid(f"{record.name} isn't a spot job: only EnableManagedSpotTraining jobs are interrupted")
    _order(record, {"order": INTERRUPT}, context)
    before = record.facts.get("_interruptions", 0)

    def interrupted(found: Record) -> bool:
        return found.facts.get("_interruptions", 0) > before or found.status in OVER

    return described(await_change(record, interrupted, 2 * requested.GRACE + _PATIENCE, context))


def lose(record: Record, parameters: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """A host goes away at once, with everything on it."""
    host = parameters.get("host", "")
    hosts = requested.hosts(record.request)
    if host not in hosts:
        raise invalid(f"{record.name} has no host {host!r}: expected one of {', '.join(hosts)}")
    identity = secrets.token_hex(8)
    _order(record, {"order": "lose", "host": host, "id": identity}, context)

    def made(found: Record) -> bool:
        return any(each["Id"] == identity for each in found.facts.get("_faults", [])) or found.status in OVER

    return described(await_change(record, made, _PATIENCE, context))


def wait_for_output(record: Record, parameters: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """Answers when a host has written ``text``."""
    text = str(parameters.get("text", "")).encode()
    until = time.monotonic() + float(parameters.get("timeout", 600.0))
    kept = b""
    with Followed(os.path.join(context.settings.job_directory(record.name), LOG)) as log:
        forget = context.notices.listen(lambda changes: log.wake() if changes == record.name else None)
        try:
            while True:
                found = context.state.find(KIND, record.name)
                kept = kept[-len(text) :] + log.read()
                if text in kept:
                    return {}
                if found is None or found.status in OVER:
                    over = found.facts.get("FailureReason", found.status) if found else "deleted"
                    raise ApiError(
                        "Timeout", f"{record.name} is over, and hasn't written {text.decode()!r}: {over}", 408
                    )
                if not log.wait(max(0.0, until - time.monotonic())):
                    raise ApiError("Timeout", f"{record.name} hasn't written {text.decode()!r}", 408)
        finally:
            forget()


def _order(record: Record, order: Mapping[str, Any], context: Context) -> None:
    """Tells a job whose hosts run.

    Raises:
        ApiError: they don't.
    """
    if record.facts["SecondaryStatus"] != "Training" or not context.runner.order(record.name, order):
        raise invalid(f"{record.name} is {record.facts['SecondaryStatus']}: its hosts don't run")


CONTROLS: Mapping[str, Control] = {
    "wait": wait,
    "wait-for-output": wait_for_output,
    "interrupt": interrupt,
    "lose": lose,
}
DESCRIBED: Mapping[str, Callable[[Context, Record], Mapping[str, Any]]] = {
    KIND: lambda context, record: described(record),
    PROCESSING: lambda context, record: processing_jobs.described(record),
    tuning_jobs.KIND: tuning_jobs.described,
    executions.KIND: lambda context, record: executions.described(record),
}
"""What Describe answers, by kind."""
