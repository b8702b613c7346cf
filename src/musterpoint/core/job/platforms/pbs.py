"""Reads the job from the file of hosts that PBS (OpenPBS, PBS Professional) and Torque make for a job.

It has each host once for each of its slots, and is on the first host; where other hosts can't read it, a copy of it
in a shared directory will do. Sources: openpbs/openpbs, ``doc/man1/qsub.1B``; Torque's manuals of ``qsub``
(https://manpages.ubuntu.com/manpages/xenial/man1/qsub.1B.html) and ``pbsdsh``.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import node_name, small_text
from musterpoint.core.job.model import Job, Note
from musterpoint.core.job.other_platforms import shown_variables
from musterpoint.core.job.platform import DocsRow, Platform
from musterpoint.core.job.rosters import listed_job, once_each, place_by_name, port_of, read_from

NAME, TITLE = "pbs", "PBS"
FILE, NODES, PLACE = "PBS_NODEFILE", "PBS_NUM_NODES", "PBS_NODENUM"


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of the hosts in the file; a host of its own where nothing says that there are others.

    Raises:
        UsageError: the file can't be read here and there are others, or this host isn't in it.
    """
    path = environ.get(FILE, "")
    hosts = once_each(small_text(path).split()) if path else ()
    notes: tuple[Note, ...] = (read_from(TITLE, environ, (FILE,), f"{len(hosts)} hosts"),)
    if not hosts:
        several = [
            name for name, one in ((NODES, "1"), (PLACE, "0")) if environ.get(name, one).strip() not in ("", one)
        ]
        if several or not _found(environ, ""):
            said = shown_variables((name, environ[name]) for name in (*several, FILE) if environ.get(name))
            raise UsageError(
                f"{said or FILE + ' is not set'}: the file with the job's hosts can't be read here, and the first host "
                f'has it: copy it there to a shared directory (cp "${FILE}" "$PBS_O_WORKDIR/hosts"), and set {FILE} '
                "to the copy on all hosts"
            )
        hosts, notes = (node_name(),), ()
        if path:
            text = f"{FILE}={path} can't be read here: this is a job of one host; if there are more, share that file"
            notes = (Note("warning", text),)
    place = place_by_name(hosts, FILE, number=environ.get(PLACE, ""))
    job = listed_job(NAME, environ, hosts, place, FILE)
    number = environ.get("PBS_JOBID", "").partition(".")[0].partition("[")[0]
    name = f"{environ.get('PBS_JOBNAME') or NAME}-{number}" if number else ""
    return job._replace(name=name, rollcall_port=port_of(number), notes=notes)


def _found(environ: Mapping[str, str], _base: str) -> bool:
    path = environ.get(FILE, "")
    return bool(environ.get("PBS_JOBID") or environ.get(NODES) or environ.get(PLACE) or (path and small_text(path)))


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("PBS_", "PMI_", "PALS_"),
    found=_found,
    once_per_host="pbsdsh or mpiexec, once per host",
    row=DocsRow(
        "#pbs-torque-and-lsf",
        "the hosts in `PBS_NODEFILE`",
        "`mpiexec --ppn 1 muster launch …`, `pbsdsh -u muster launch …`",
        "the roll call has a port of the job's own",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
