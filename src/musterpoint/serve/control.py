"""What a running server is asked for beside AWS's API, by our own command and Python API; signed as every call is.

``CONTROLS`` names them all: a function ``(record, parameters, context) -> response`` each.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Mapping

from musterpoint.serve.context import Context
from musterpoint.serve.errors import ApiError, invalid
from musterpoint.serve.operations.training_jobs import described
from musterpoint.serve.state import Record
from musterpoint.serve.transitions import KIND, OVER

Control = Callable[[Record, Mapping[str, Any], Context], Mapping[str, Any]]
SERVICE = "muster"
PATH = "/_muster/jobs/"


def answer(context: Context, path: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer to a control at ``path``: ``/_muster/jobs/JOB/CONTROL``.

    Raises:
        ApiError: there is no such job or control, or it refuses.
    """
    name, _, what = path.removeprefix(PATH).partition("/")
    control = CONTROLS.get(what)
    if control is None:
        raise invalid(f"{what}: expected one of {', '.join(CONTROLS)}")
    record = context.state.find(KIND, name)
    if record is None:
        raise invalid(f"there is no training job {name}")
    return control(record, parameters, context)


def wait(record: Record, parameters: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """Answers when the job is over, or in one of the wanted statuses."""
    wanted = parameters.get("status") or OVER
    changed = threading.Event()
    forget = context.notices.listen(lambda name: changed.set() if name == record.name else None)
    try:
        return _wait(record.name, wanted, float(parameters.get("timeout", 600.0)), changed, context)
    finally:
        forget()


def _wait(name: str, wanted: Any, timeout: float, changed: threading.Event, context: Context) -> Mapping[str, Any]:
    while True:
        changed.clear()
        found = context.state.find(KIND, name)
        if found is None:
            raise invalid(f"the training job {name} has been deleted")
        passed = {each["Status"] for each in found.facts["SecondaryStatusTransitions"]}
        if found.status in wanted or passed.intersection(wanted):
            return described(found)
        if found.status in OVER:
            raise ApiError("Timeout", f"{name} is {found.status}, and never was {' or '.join(wanted)}", 408)
        if not changed.wait(timeout):
            raise ApiError("Timeout", f"{name} is still {found.facts['SecondaryStatus']}", 408)


CONTROLS: Mapping[str, Control] = {"wait": wait}
