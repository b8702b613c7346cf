"""Reads the job from what Kubernetes tells a pod: its number in an Indexed Job or JobSet, and its name.

How many pods there are it tells nobody, so MUSTER_NNODES does. Pods of one Job differ in the number at the end of their
names, and have a common domain, that of the headless Service that the pod's ``subdomain`` names. Sources: Kubernetes'
documentation of Indexed Jobs, StatefulSets and DNS; JobSet's of its pods' names (``JOBSET-JOB-INDEX-POD``).
"""

from __future__ import annotations

import re
from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count, shown, wrong
from musterpoint.core.job.model import Job, Note, Sources, UnnamedHosts
from musterpoint.core.job.opt_ml import BASE
from musterpoint.core.job.other_platforms import refuse_started_ranks, shown_variables
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.pods import INDEX, domain_of, pod_job, pod_name, pod_paths
from musterpoint.core.job.unnamed import endpoint_in, from_variables, unnamed_job

NAME = "kubernetes"
_NUMBERED = re.compile(r"(.*?)([0-9]+)")


def read_job(environ: Mapping[str, str], settings: Settings, _base: str = "") -> Job:
    """The job of this pod and of those that differ from it in their number only.

    Raises:
        UsageError: nothing says how many pods there are, or this pod's name has no number.
    """
    refuse_started_ranks(environ)
    name = pod_name(environ)
    found = _NUMBERED.fullmatch(name)
    index = environ.get(INDEX, "")
    described = from_variables(NAME, environ) if settings.nnodes is None else None
    if described is not None:
        return described._replace(platform=NAME, paths=pod_paths(environ))
    if settings.nnodes is None:
        where = f"{shown_variables([(INDEX, index)])}: this pod is one of a Job's" if index else f"this pod is {name}"
        raise UsageError(
            f"{where}, and Kubernetes doesn't say how many there are: set MUSTER_NNODES to the Job's completions "
            "(or the StatefulSet's replicas) in the manifest, SM_HOSTS and SM_CURRENT_HOST where pods have other "
            "names, or MUSTER_PLATFORM=plain where each pod is a job of its own"
        )
    if settings.nnodes == 1 and index and not environ.get("MUSTER_NNODES"):
        words = (
            f"{shown_variables([(INDEX, index)])}: this pod is one of a Job's, and --nnodes 1 (--standalone of "
            "torchrun) makes each of them a job of its own; for one job set MUSTER_NNODES to the Job's completions "
            "in the manifest"
        )
        alone = pod_job(NAME, environ, (name,), 0)
        return alone._replace(notes=(Note("warning", words),))
    misfit = found is None or (index and found[2] != index)
    if job := _of_another_pods(environ, settings, name, found[1] if found and not misfit else ""):
        return job
    leader = settings.rollcall_leader or (environ.get("MASTER_ADDR", "") if misfit else "")
    if index and leader:
        address, port = endpoint_in("MASTER_ADDR", leader)
        unnamed = UnnamedHosts(settings.nnodes, count(index, INDEX, 0), address, port, name, _SOURCES)
        return unnamed_job(NAME, unnamed)._replace(paths=pod_paths(environ))
    if found is None or misfit:
        said = f"{INDEX} is {shown(index)}" if index else "MUSTER_NNODES counts pods of an Indexed Job or a StatefulSet"
        raise UsageError(
            f"{said}, and this pod's name is {shown(name)}, expected a name that ends with its number, such as "
            "train-0: name all pods in SM_HOSTS (a JSON list) and this one in SM_CURRENT_HOST, or the first in "
            "MUSTER_ROLLCALL_LEADER (hostNetwork takes a pod's own name away)"
        )
    place = count(index or found[2], INDEX, 0)
    if place >= settings.nnodes:
        raise wrong(INDEX if index else "this pod's number", place, f"less than MUSTER_NNODES, {settings.nnodes}")
    domain = domain_of(name, settings)
    first, dot, rest = environ.get("MASTER_ADDR", "").partition(".")
    if not domain and dot and first == f"{found[1]}0":
        domain = f".{rest}"
    names = tuple(f"{found[1]}{number}{domain}" for number in range(settings.nnodes))
    number = f", {INDEX}={index}" if index else ""
    notes = [
        Note("plan", f"Kubernetes: {settings.nnodes} pods by MUSTER_NNODES, called as this one, {name}{domain}{number}")
    ]
    if not domain and settings.nnodes > 1:
        text = f"this pod is {name} without a domain, so others may not find it: {_SUBDOMAIN}"
        notes.append(Note("warning", text))
    return pod_job(NAME, environ, names, place)._replace(notes=tuple(notes))


def _of_another_pods(environ: Mapping[str, str], settings: Settings, name: str, own: str) -> Job | None:
    """The job of a pod whose first pod belongs to another Job, as in a JobSet of several; None where it doesn't.

    ``own``: how the names of this pod's Job begin; empty where its name isn't one of those. The pods' numbers are no
    places in such a job, and by its name a JobSet's first pod can't see whether other Jobs belong to it.

    Raises:
        UsageError: nothing says which place this pod has.
    """
    leader = settings.rollcall_leader or environ.get("MASTER_ADDR", "")
    variable = "MUSTER_ROLLCALL_LEADER" if settings.rollcall_leader else "MASTER_ADDR"
    address, port = endpoint_in(variable, leader) if leader else ("", 0)
    first, dot, domain = address.partition(".")
    if not dot or not _NUMBERED.fullmatch(first) or first.isdecimal():
        return None
    of_jobset = domain.partition(".")[0]
    foreign = bool(own) and not first.startswith(own) and bool(environ.get(INDEX))
    place = environ.get("NODE_RANK", "") if settings.node_rank is None else str(settings.node_rank)
    source = "NODE_RANK" if settings.node_rank is None else "MUSTER_NODE_RANK"
    if not (foreign or (place and name.startswith(f"{of_jobset}-") and first.startswith(f"{of_jobset}-"))):
        return None
    if not place:
        raise UsageError(
            f"{variable}={leader}: the first pod is {first}, of another Job than this one, {name}, whose "
            f"{INDEX}={environ[INDEX]} numbers the pods of its own Job only: set MUSTER_NODE_RANK on every pod, "
            f"from 0 to {(settings.nnodes or 1) - 1} (in a JobSet whose Jobs have one pod each, from the annotation "
            f"jobset.sigs.k8s.io/job-global-index), or leave {variable} out where each Job trains on its own"
        )
    sources = Sources("MUSTER_NNODES", source, variable)
    unnamed = UnnamedHosts(settings.nnodes or 1, count(place, source, 0), address, port, name, sources)
    return unnamed_job(NAME, unnamed)._replace(paths=pod_paths(environ))


_SOURCES = Sources("MUSTER_NNODES", INDEX)
_SUBDOMAIN = "set spec.template.spec.subdomain to the name of a headless Service"


def _found(environ: Mapping[str, str], _base: str) -> bool:
    """A pod of an Indexed Job, or one that says how many there are without saying where they meet."""
    counted = environ.get("MUSTER_NNODES") and not environ.get("MUSTER_ROLLCALL_LEADER")
    return bool(environ.get(INDEX) or (environ.get("KUBERNETES_SERVICE_HOST") and counted))


PLATFORM = Platform(
    name=NAME,
    title="Kubernetes",
    read=read_job,
    variables=(INDEX, "JOBSET_", "PET_", "KUBERNETES_SERVICE", "HOSTNAME"),
    found=_found,
    folder=BASE,
    sample=Sample(
        "train-{rank}.train",
        {
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            "KUBERNETES_SERVICE_PORT": "443",
            "HOSTNAME": "{pod}",
            INDEX: "{rank}",
            "MUSTER_NNODES": "{hosts}",
        },
    ),
    row=DocsRow(
        "kubernetes.md",
        "`JOB_COMPLETION_INDEX`, the pod's name; `MUSTER_NNODES` in the manifest",
        "`muster launch …` as the container's command",
        "the reason goes to `/dev/termination-log`, too",
        "`/opt/ml` too, where it can be made, else as on machines of your own",
        "the pod's termination message, and `/opt/ml/output/failure` where `/opt/ml` can be made",
    ),
)
