"""Sends the job's results to a place of its own, when it is over."""

import os
from typing import Any, Mapping

from musterpoint.base.errors import FetchError, MusterError
from musterpoint.base.records import NamedTuple
from musterpoint.base.stop_budget import SHORTEST_UPLOAD, UPLOAD_RESERVE
from musterpoint.core.data.mover_process import Access, Say
from musterpoint.core.data.moves import has_files, send
from musterpoint.core.data.places import below
from musterpoint.core.processes.beside import run
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.supervise.state import Outcome
from musterpoint.core.supervise.watcher import WatchedJob, Watcher


class ToSend(NamedTuple):
    """The place of the results, as archives or as files."""

    uri: str
    as_files: bool
    access: Access


class SentResults(Watcher):
    """Sends the model, of the first host, and every host's output data. Nothing here raises."""

    def __init__(self, seen: WatchedJob) -> None:
        self._seen = seen
        self._asked: ToSend = seen.found["results"]
        results = filter(None, (seen.job.paths.model, seen.job.paths.output_data))
        self._sources = {path: os.path.realpath(path) for path in results}
        """The real path of each directory before the ranks; a link that comes later isn't followed."""
        self._until = float("inf")

    def ends(self, outcome: Outcome) -> Mapping[str, Any]:
        seconds, job = self._seen.left(outcome), self._seen.job
        if seconds is not None:
            self._until = self._seen.loop.clock() + max(SHORTEST_UPLOAD, seconds - UPLOAD_RESERVE)
        self._seen.signals.route_to(self._on_signal)
        leads = job.current_host == job.first_host
        sent = [self._send("model", job.paths.model, "model")] if leads else []
        sent.append(self._send("output", job.paths.output_data, "output" if leads else f"output-{job.current_host}"))
        return {"uploads": list(filter(None, sent))}

    def _send(self, what: str, directory: str, name: str) -> dict[str, Any]:
        """Sends what is there; what became of it, for ``outcome.json``. Empty: there is nothing."""
        say, (asked_uri, as_files, access) = self._seen.say, self._asked
        sent: dict[str, Any] = {"what": what, "uri": asked_uri, "bytes": 0, "problem": ""}
        is_there = bool(directory) and os.path.lexists(directory)
        if not directory or (not is_there and what != "model"):
            return {}
        if not os.path.isdir(directory):
            problem = f"{directory} is no directory any more" if is_there else f"{directory} isn't there any more"
            say(f"warning: {problem}: nothing of it is sent")
            return {**sent, "problem": problem}
        if (now := os.path.realpath(directory)) != self._sources.get(directory, now):
            was = self._sources[directory]
            problem = f"{directory} isn't sent: it was {was} before the ranks, and leads to {now} now"
            say(f"warning: {problem}")
            return {**sent, "problem": problem}
        if not has_files(now):
            return {}
        archive = "" if as_files else f"{name}.tar.gz"
        uri = below(asked_uri, name) if as_files else asked_uri
        try:
            size = send(now, uri, access, archive, None, say, self._run).size
        except MusterError as error:
            say(f"warning: {error}")
            return {**sent, "uri": uri, "problem": str(error)}
        say(f"{what}: {size.sentence} went to {below(uri, archive) if archive else uri}")
        return {**sent, "uri": uri, "bytes": size.bytes}

    def _on_signal(self, signo: int) -> None:
        if signo in STOPPING:
            self._until = min(self._until, self._seen.loop.clock() + self._seen.grace - UPLOAD_RESERVE)

    def _run(self, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        """Runs a program in the loop, no longer than a stop allows."""
        return run(self._seen.loop, self._seen.sidecars, argv, environ, on_line, self._left)

    def _left(self) -> float | None:
        left = self._until - self._seen.loop.clock()
        if left <= 0:
            raise FetchError("there was no more time to send the results")
        return None if left == float("inf") else left


watch = SentResults
