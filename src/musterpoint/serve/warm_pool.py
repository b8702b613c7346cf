"""Warm pools: what a job with a KeepAlivePeriod leaves is kept for the next job of the same kind.

There are no instances to keep here. What is kept is the cache directory of each host, for as long as it was asked for.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from typing import Any, Mapping

from musterpoint.serve.notices import Notices
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import Record, State
from musterpoint.serve.transitions import KIND

CACHE = "sagemaker/warmpoolcache"
"""Below ``/opt/ml``, as on the platform."""
FOLDER = "warm"
_SAME = ("RoleArn", "VpcConfig", "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption")
_SAME_RESOURCES = ("InstanceType", "InstanceCount", "InstanceGroups", "VolumeSizeInGB", "VolumeKmsKeyId")
_AVAILABLE = "json_extract(facts, '$.WarmPoolStatus.Status') = 'Available'"


def keep_alive(request: Mapping[str, Any]) -> int:
    return int(request.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds", 0))


def _kind(request: Mapping[str, Any]) -> list[Any]:
    """What two jobs have in common where the second gets the first's instances."""
    resources = request["ResourceConfig"]
    image = request["AlgorithmSpecification"].get("TrainingImage")
    return [image, *(request.get(name) or None for name in _SAME), *(resources.get(name) for name in _SAME_RESOURCES)]


class WarmPools:
    """All pools of one server."""

    def __init__(self, settings: Settings, state: State, notices: Notices) -> None:
        self._settings, self._state, self._notices = settings, state, notices
        self._timers: dict[str, threading.Timer] = {}

    def start(self) -> None:
        """Goes on with those of a former server."""
        for record in self._state.select(KIND, _AVAILABLE):
            self.changed(record.name)

    def take(self, name: str, request: Mapping[str, Any]) -> str:
        """The job whose pool the new job ``name`` gets; empty: there is none."""
        if not keep_alive(request):
            return ""
        for record in self._state.select(KIND, _AVAILABLE):
            if _kind(record.request) == _kind(request) and self._reuse(record.name, name):
                return record.name
        return ""

    def _reuse(self, name: str, by: str) -> bool:
        taken: list[Record] = []

        def change(record: Record) -> Record | None:
            if record.facts.get("WarmPoolStatus", {}).get("Status") != "Available":
                return None
            taken.append(_with(record, "Reused", ReusedByJob=by))
            return taken[0]

        self._state.change(KIND, name, change)
        return bool(taken)

    def changed(self, name: str) -> None:
        """A job has changed: where it has a pool now, the pool's time runs."""
        record = self._state.find(KIND, name)
        if record is None or record.facts.get("WarmPoolStatus", {}).get("Status") != "Available":
            return
        left = record.facts["_warm_since"] + keep_alive_of(record) - time.time()
        before = self._timers.pop(name, None)
        if before is not None:
            before.cancel()
        timer = self._timers[name] = threading.Timer(max(0.0, left), self._end, (name,))
        timer.daemon = True
        timer.start()

    def _end(self, name: str) -> None:
        def change(record: Record) -> Record | None:
            available = record.facts.get("WarmPoolStatus", {}).get("Status") == "Available"
            return _with(record, "Terminated") if available else None

        ended = self._state.change(KIND, name, change)
        if ended is not None and ended.facts["WarmPoolStatus"]["Status"] == "Terminated":
            shutil.rmtree(os.path.join(self._settings.job_directory(name), FOLDER), ignore_errors=True)
        self._state.close()
        self._notices.send(name)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()


def keep_alive_of(record: Record) -> int:
    """Seconds that the pool of a job is kept, as it was last asked for."""
    return int(record.facts.get("_keep_alive", keep_alive(record.request)))


def available(record: Record) -> dict[str, Any]:
    """The facts of a job that is over, whose pool is kept from now on; none where it asked for none."""
    if not keep_alive_of(record):
        return {}
    return {"WarmPoolStatus": {"Status": "Available"}, "_warm_since": time.time()}


def _with(record: Record, status: str, **more: Any) -> Record:
    since = record.facts.get("_warm_since", time.time())
    retained = {"ResourceRetainedBillableTimeInSeconds": max(0, round(time.time() - since))}
    return record._replace(facts={**record.facts, "WarmPoolStatus": {"Status": status, **retained, **more}})


def bring_cache(settings: Settings, origin: str, host: str, tree: str) -> None:
    """Gives ``host`` the cache that the host of its name had in the job ``origin``; an empty one where it had none."""
    place = os.path.join(tree, CACHE)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    kept = os.path.join(settings.job_directory(origin), FOLDER, host) if origin else ""
    if kept and os.path.isdir(kept):
        os.replace(kept, place)
    else:
        os.makedirs(place, exist_ok=True)


def keep_cache(directory: str, host: str, tree: str) -> None:
    """Keeps the cache of ``host`` beside what else the job in ``directory`` left."""
    place = os.path.join(tree, CACHE)
    if os.path.isdir(place):
        os.makedirs(os.path.join(directory, FOLDER), exist_ok=True)
        os.replace(place, os.path.join(directory, FOLDER, host))
