"""The status of a Kubeflow TrainJob, where its trainer takes one: its program's progress, and why it failed.

The trainer's server applies what it gets in place of all that was sent before, and only takes requests: so a failure
is sent together with the last progress that is known. Source: kubeflow/trainer, ``pkg/statusserver`` and
``pkg/apis/trainer/v1alpha1`` (type ``TrainerStatus``).
"""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from typing import Any, Mapping

from musterpoint.base.failure import Failure
from musterpoint.base.untrusted import printable

URL, CERTIFICATE, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
"""Variables: where the status goes; the paths of the certificate that proves the server, and of a token, which the
cluster renews every hour."""
SECONDS = 5.0
"""For everything: the look-up of the server's name, the connections, the answers."""
_PAUSE = 0.5
_LONGEST = 64
"""Characters of a metric's name or value."""
_LARGEST = 1 << 16
NO_PROGRESS: Mapping[str, Any] = {}


class _Refused(Exception):
    """The server's answer means that another try would get the same."""


def report(
    failure: Failure, environ: Mapping[str, str], seconds: float = SECONDS, progress: Mapping[str, Any] = NO_PROGRESS
) -> str:
    """Sends ``failure``, with the last ``progress`` (fields of ``TrainerStatus``), as :func:`send` does."""
    return send(status_of(failure, progress), environ, seconds, "the failure")


def send(
    status: Mapping[str, Any], environ: Mapping[str, str], seconds: float = SECONDS, what: str = "progress"
) -> str:
    """Sends ``status`` to the server that ``environ`` names; tries again while that may help.

    Returns why it couldn't be delivered, as a sentence about ``what``; empty where it was, or where there is no server.
    It raises nothing.
    """
    if not environ.get(URL):
        return ""
    problems: list[str] = []
    until = time.monotonic() + seconds
    # in a thread, since a look-up of a name can't be given up
    thread = threading.Thread(target=_deliver, args=(status, environ, until, problems), daemon=True)
    thread.start()
    thread.join(seconds)
    problem = "no answer" if thread.is_alive() and not problems else problems[-1] if problems else ""
    return f"{URL}={environ[URL]}: {what} could not be reported there: {problem}" if problem else ""


def status_of(failure: Failure, progress: Mapping[str, Any] = NO_PROGRESS) -> dict[str, Any]:
    """The fields of ``TrainerStatus`` for a failure after ``progress``; nothing remains to be waited for."""
    first_line = failure.reason.partition("\n")[0]
    facts = {
        "failure": first_line or "failed",
        "exit_code": str(failure.code),
        "failed_host": failure.host,
        "failed_rank": "" if failure.rank is None else str(failure.rank),
    }
    kept = {name: value for name, value in progress.items() if name != "estimatedRemainingSeconds"}
    metrics = [each for each in progress.get("metrics", ()) if each["name"] not in facts]
    own = [{"name": name, "value": text[:_LONGEST]} for name, text in facts.items() if text]
    return {**kept, "metrics": [*metrics, *own]}


def _deliver(status: Mapping[str, Any], environ: Mapping[str, str], until: float, problems: list[str]) -> None:
    """Tries until it is delivered, refused, or too late; ``problems`` has the last one, and is empty at the end if it
    was delivered.
    """
    while True:
        try:
            _post(status, environ, max(0.1, until - time.monotonic()))
        except _Refused as error:
            problems.append(str(error))
            return
        except Exception as error:  # whatever it is, the job's own end goes on
            problems.append(str(getattr(error, "reason", None) or error) or type(error).__name__)
        else:
            problems.clear()
            return
        if time.monotonic() + _PAUSE > until:
            return
        time.sleep(_PAUSE)


def _post(status: Mapping[str, Any], environ: Mapping[str, str], seconds: float) -> None:
    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """The token is for this server alone."""

        def redirect_request(self, *_details: Any) -> None:
            return None

    if not environ[URL].startswith("https://"):
        raise _Refused("expected an https:// address, since a token is sent along")
    context = ssl.create_default_context(cafile=environ.get(CERTIFICATE) or None)
    with open(environ[TOKEN], encoding="ascii") as file:  # read for each try: the cluster renews it
        token = file.read(_LARGEST).strip()
    if not token.isprintable() or " " in token or not token:  # an error of the library's would quote it
        raise _Refused(f"{TOKEN}={environ[TOKEN]}: expected a file with a token")
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    request = urllib.request.Request(
        environ[URL],
        json.dumps({"trainerStatus": {**status, "lastUpdatedTime": now}}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="POST",
    )
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), NoRedirect())
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as answer:
            answer.read(_LARGEST)
    except urllib.error.HTTPError as error:
        words = f"{error.code} {_message(error.read(_LARGEST)) or error.reason}"
        raise (RuntimeError if error.code >= 500 or error.code == 429 else _Refused)(words) from None


def _message(body: bytes) -> str:
    """The ``message`` of a Kubernetes status; empty where the answer is another."""
    try:
        found = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return printable(found, 200) if isinstance(found, str) else ""
