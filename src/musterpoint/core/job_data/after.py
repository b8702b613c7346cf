"""After the ranks: what they left as model and output data goes where ``--upload`` says."""

import os
from typing import Any, Mapping

from musterpoint.base.errors import MusterError
from musterpoint.base.stop_budget import SHORTEST_UPLOAD, UPLOAD_RESERVE
from musterpoint.core.data.mover import Access, Say
from musterpoint.core.data.places import below
from musterpoint.core.data.uploads import send
from musterpoint.core.job.model import Job
from musterpoint.core.job_data.plan import Upload
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.runtime import Runtime


def upload(
    runtime: Runtime, job: Job, asked: Upload, access: Access, seconds: float | None, grace: float
) -> list[dict[str, Any]]:
    """Sends the model, of the first host, and every host's output data; what became of it, for ``outcome.json``.

    ``seconds``: how long it may take after a stop (None: no stop limits it). ``grace``: how long a stop leaves that
    comes meanwhile. Nothing here raises.
    """
    leads = job.current_host == job.leader
    wanted = [("model", job.paths.model, "model")] if leads else []
    wanted.append(("output", job.paths.output_data, "output" if leads else f"output-{job.current_host}"))
    until = None if seconds is None else runtime.loop.clock() + max(SHORTEST_UPLOAD, seconds - UPLOAD_RESERVE)
    carrier = _Carrier(runtime, until, grace)
    runtime.signals.route_to(carrier.on_signal)
    found = []
    for what, directory, name in wanted:
        if not directory or not _has_files(directory):
            continue
        archive = "" if asked.as_files else f"{name}.tar.gz"
        uri = below(asked.uri, name) if asked.as_files else asked.uri
        try:
            sent = send(directory, uri, access, archive, None, runtime.console.say, carrier.run)
        except MusterError as error:
            runtime.console.say(f"warning: {error}")
            found.append({"what": what, "uri": uri, "bytes": 0, "problem": str(error)})
            continue
        runtime.console.say(f"{what}: {sent.size.sentence} went to {below(uri, archive) if archive else uri}")
        found.append({"what": what, "uri": uri, "bytes": sent.size.bytes, "problem": ""})
    return found


class _Carrier:
    """Runs a program in the loop, no longer than a stop allows."""

    def __init__(self, runtime: Runtime, until: float | None, grace: float) -> None:
        self._runtime, self._until, self._grace = runtime, until, grace

    def on_signal(self, signo: int) -> None:
        if signo in STOPPING:
            until = self._runtime.loop.clock() + self._grace - UPLOAD_RESERVE
            self._until = until if self._until is None else min(self._until, until)

    def run(self, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        loop, ended = self._runtime.loop, list[int]()
        try:
            sidecar = self._runtime.sidecars.start(argv, environ, on_line, ended.append)
        except CannotStart as error:
            raise error.error from None
        while not ended:
            if self._until is not None and loop.clock() >= self._until:
                sidecar.dismiss()
                on_line('{"error": "there was no more time"}')
                return 1
            loop.turn(None if self._until is None else self._until - loop.clock())
        return ended[0]


def _has_files(directory: str) -> bool:
    return any(files for _folder, _folders, files in os.walk(directory))
