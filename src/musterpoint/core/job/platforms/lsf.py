"""Reads the job from the lists of hosts that LSF gives a job's tasks.

Where jobs are launched from a node of their own, that one stands first with one slot, and takes no part. Sources:
https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=variables-environment-set-job-execution of IBM's documentation;
the manuals of ``blaunch`` and ``jsrun``.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count, wrong
from musterpoint.core.job.model import Job
from musterpoint.core.job.other_platforms import shown_variables
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.rosters import (
    listed_job,
    needed,
    numbered,
    once_each,
    place_by_name,
    place_of,
    port_of,
    read_from,
)

NAME, TITLE = "lsf", "LSF"
COUNTED, LISTED = "LSB_MCPU_HOSTS", "LSB_HOSTS"
TASKS, TASK = "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"
"""Of ``jsrun``'s tasks."""


def hosts_of(text: str) -> tuple[str, ...]:
    """The hosts of ``HOST SLOTS HOST SLOTS``, without a launch node.

    Raises:
        UsageError: it is no such list.
    """
    words = text.split()
    hosts, slots = words[::2], words[1::2]
    if len(hosts) != len(slots) or not all(number.isdecimal() for number in slots):
        raise wrong(COUNTED, text, "hosts, each with its slots, such as node1 4 node2 4")
    if len(hosts) > 1 and slots[0] == "1" and set(slots[1:]) != {"1"}:
        hosts = hosts[1:]
    return once_each(hosts)


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of the hosts that were allocated.

    Raises:
        UsageError: a list is malformed or missing, this host isn't in it, or jsrun started several tasks per host.
    """
    variable = COUNTED if environ.get(COUNTED) else LISTED
    text = needed(environ, variable, TITLE)
    hosts = hosts_of(text if variable == COUNTED else _counted(text))
    number = environ.get("LSB_JOBID", "")
    job = listed_job(NAME, environ, hosts, _place(environ, hosts, variable), variable)
    name = f"{environ.get('LSB_JOBNAME') or NAME}-{number}" if number else ""
    return job._replace(
        name=name, rollcall_port=port_of(number), notes=(read_from(TITLE, environ, (variable, TASKS, TASK)),)
    )


def _counted(text: str) -> str:
    """``HOST SLOTS HOST SLOTS`` of a list that has each host once for each slot."""
    names = text.split()
    return " ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))


def _place(environ: Mapping[str, str], hosts: tuple[str, ...], variable: str) -> int:
    if not environ.get(TASKS):
        return place_by_name(hosts, variable)
    tasks = count(environ[TASKS], TASKS)
    if tasks != len(hosts):
        raise UsageError(
            f"{shown_variables([(TASKS, environ[TASKS])])}, and {variable} lists {len(hosts)} hosts: expected one task "
            f"on each, which starts all ranks itself: jsrun -n {len(hosts)} -r 1 -a 1 -c ALL_CPUS -g ALL_GPUS muster "
            "launch ..."
        )
    return place_of(environ, TASK, tasks, "jsrun")


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("LSB_", "LSF_", "JSM_"),
    found=lambda environ, _base: any(environ.get(name) for name in (COUNTED, LISTED)),
    numbers=numbered(TASK, TASKS, "JSM_NAMESPACE_LOCAL_RANK"),
    once_per_host="jsrun -r 1 -a 1, or blaunch -z",
    sample=Sample(
        variables={
            "LSB_JOBID": "1",
            "LSB_JOBNAME": "{job}",
            COUNTED: "{names: 2 } 2",
            LISTED: "{names: }",
            TASKS: "{hosts}",
            TASK: "{rank}",
            "JSM_NAMESPACE_LOCAL_RANK": "0",
        }
    ),
    row=DocsRow(
        "#pbs-torque-and-lsf",
        "the hosts in `LSB_MCPU_HOSTS` (or `LSB_HOSTS`), `JSM_NAMESPACE_*`",
        '`blaunch -z "HOSTS" muster launch …`, `jsrun -r 1 -a 1 -c ALL_CPUS -g ALL_GPUS muster launch …`',
        "a launch node takes no part; the roll call has a port of the job's own",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
