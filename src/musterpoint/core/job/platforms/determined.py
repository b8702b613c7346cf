"""Reads the job from the file in which Determined tells the containers of a trial about each other.

Source: determined-ai/determined, ``harness/determined/_info.py`` (``RendezvousInfo``) and
``harness/determined/exec/prep_container.py``, which writes it.
"""

from __future__ import annotations

from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count, host_list, load, mapping, small_text, wrong
from musterpoint.core.job.model import Counted, Job, Note
from musterpoint.core.job.platform import DocsRow, Platform
from musterpoint.core.job.rosters import listed_job

NAME, TITLE = "determined", "Determined"
FILE = "/run/determined/info/rendezvous.json"


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of this trial's containers.

    Raises:
        UsageError: the file is missing or malformed.
    """
    if not small_text(FILE):
        raise UsageError(
            f"{FILE} isn't here, expected Determined's list of a trial's containers for --platform determined"
        )
    info = mapping(load(FILE), FILE)
    hosts = host_list(info.get("container_addrs"), f"{FILE}: container_addrs")
    if not hosts:
        raise wrong(f"{FILE}: container_addrs", [], "at least one address")
    place = count(info.get("container_rank"), f"{FILE}: container_rank", 0, len(hosts) - 1)
    job = listed_job(NAME, environ, hosts, place, f"{FILE}: container_addrs")
    trial = environ.get("DET_TRIAL_ID") or environ.get("DET_ALLOCATION_ID", "")
    note = Note("plan", f"{TITLE}: container {place} of {len(hosts)}, by {FILE}")
    return job._replace(
        name=f"trial-{trial}" if trial else "", counted=_slots(info.get("container_slot_counts"), place), notes=(note,)
    )


def _slots(counts: Any, place: int) -> Counted:
    """This container's slots, which older versions don't tell."""
    where = f"{FILE}: container_slot_counts"
    if counts is None:
        return Counted()
    if not isinstance(counts, list) or len(counts) <= place:
        raise wrong(where, counts, "a number for each container")
    slots = count(counts[place], f"{where}[{place}]", 0)
    return Counted(slots, where) if slots else Counted()


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("DET_",),
    found=lambda environ, _base: bool(small_text(FILE)),
    row=DocsRow(
        "#determined",
        f"`{FILE}`",
        "`muster launch …` as the experiment's `entrypoint:`",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
