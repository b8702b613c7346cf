"""Watches Azure's scheduled events for this machine, so that what ends it stops the job, with its checkpoints."""

from __future__ import annotations

import json
import sys
from typing import Callable, Mapping

from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.embedded.programs.registry import Texts

METADATA = "AZURE_POD_IDENTITY_AUTHORITY_HOST"
"""Variable: where the metadata service is, if not at its usual address; azure-identity reads it, too."""
WORDS = {
    "Preempt": "Azure takes this low-priority machine away",
    "Terminate": "Azure ends this machine",
    "Reboot": "Azure restarts this machine",
    "Redeploy": "Azure moves this machine to another one, which restarts it",
}


class EventsWatch:
    """Watches until the sidecars end; ``on_stop`` is called once, for the first event that ends this machine.

    ``address`` is the metadata service's, unless the environment says another. Where it doesn't answer at once, nothing
    is watched and nothing said. ``on_stop``, ``say`` and ``record`` are called in the loop's thread.
    """

    def __init__(
        self,
        sidecars: Sidecars,
        environ: Mapping[str, str],
        address: str,
        say: Callable[[str], None],
        record: Callable[..., None],
        on_stop: Callable[[], None],
    ) -> None:
        self._say, self._record, self._on_stop = say, record, on_stop
        self._stopped = False
        self._texts = Texts()
        argv = (sys.executable, "-I", "-S", self._texts.path("scheduled_events"), environ.get(METADATA) or address)
        try:
            sidecars.start(argv, environ, self._on_line, lambda code: None)
        except (CannotStart, OSError) as error:
            say(f"warning: Azure's scheduled events can't be watched: {error}")

    def _on_line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "watching":
            self._record("watching-events", machine=rest)
        elif word == "event" and not self._stopped:
            self._stopped = True
            event = json.loads(rest)
            self._record("scheduled-event", type=event["type"], not_before=event["at"])
            when = f" (not before {event['at']})" if event["at"] else ""
            self._say(f"{WORDS[event['type']]}{when}: stopping the job, as SIGTERM would")
            self._on_stop()

    def close(self) -> None:
        self._texts.close()
