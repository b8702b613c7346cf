"""The job description: what DescribeTrainingJob would say of a job that is over, from what its hosts left.

Statuses and fields are those of the `API`_ that make sense on one machine; ``ExitCode``, ``Backend`` and ``Hosts`` are
ours.

.. _API: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Mapping, NamedTuple

from musterpoint.local.collect import Left
from musterpoint.local.job import LocalJob
from musterpoint.local.tree import Layout

REASON_LENGTH = 1024


class HostEnd(NamedTuple):
    """How a host ended: its entry point's exit code and when (seconds since the epoch).

    ``out_of_memory``: it was killed as a whole for using more memory than it may.
    """

    code: int
    at: float
    out_of_memory: bool = False


class Phase(NamedTuple):
    """One status the job went through, from ``start`` (seconds since the epoch)."""

    status: str
    start: float
    message: str


class JobEnd(NamedTuple):
    """``code`` is the job's exit code; ``status`` is ``Completed``, ``Failed`` or ``Stopped``."""

    status: str
    code: int
    reason: str = ""


def judge(ends: Mapping[str, HostEnd], left: Mapping[str, Left], stopped: bool) -> JobEnd:
    """How the job ended. ``stopped``: the control plane asked it to.

    What a host's musterpoint wrote into ``outcome.json`` counts before bare codes: a host that was killed has a code
    too, but the others know why the job ended.
    """
    failed = sorted((host for host in ends if ends[host].code), key=lambda host: ends[host].at)
    if not failed:
        return JobEnd("Stopped" if stopped else "Completed", 0)
    outcomes = [left[host].outcome for host in failed if host in left]
    outcome = next((found for found in outcomes if found and isinstance(found.get("code"), int) and found["code"]), {})
    code = outcome.get("code") or ends[failed[0]].code
    if stopped:
        return JobEnd("Stopped", code)
    texts = [left[host].failure for host in (str(outcome.get("host")), *failed) if host in left]
    text = next((text.strip() for text in texts if text.strip()), "") or str(outcome.get("reason") or "")
    for host in failed:
        if ends[host].out_of_memory and not (host in left and left[host].outcome):
            text = f"{host} ran out of memory: the kernel killed its container (OOMKilled)\n{text}".strip()
    suffix = f", exit code: {code}"
    head = "AlgorithmError: "
    return JobEnd("Failed", code, head + text[: REASON_LENGTH - len(head) - len(suffix)] + suffix)


def describe(
    job: LocalJob, layout: Layout, backend: str, phases: list[Phase], ends: Mapping[str, HostEnd], verdict: JobEnd
) -> dict[str, Any]:
    """The content of ``job.json``. The last of ``phases`` is the final status."""
    training = [phase.start for phase in phases if phase.status == "Training"]
    over = max((end.at for end in ends.values()), default=phases[-1].start)
    description: dict[str, Any] = {
        "TrainingJobName": job.name,
        "TrainingJobStatus": verdict.status,
        "SecondaryStatus": phases[-1].status,
        "ExitCode": verdict.code,
    }
    if verdict.reason:
        description["FailureReason"] = verdict.reason
    description.update(
        ModelArtifacts={"S3ModelArtifacts": "file://" + layout.artifact("model.tar.gz")},
        OutputDataConfig={"S3OutputPath": "file://" + layout.output},
        ResourceConfig={"InstanceType": "local", "InstanceCount": len(job.hosts)},
        Backend=backend,
        CreationTime=_iso(phases[0].start),
        LastModifiedTime=_iso(phases[-1].start),
        SecondaryStatusTransitions=[
            {
                "Status": phase.status,
                "StartTime": _iso(phase.start),
                "EndTime": _iso(following.start),
                "StatusMessage": phase.message,
            }
            for phase, following in zip(phases, [*phases[1:], phases[-1]], strict=True)
        ],
        Hosts=[_host(host, ends.get(host), layout) for host in job.hosts],
    )
    if job.container:
        description.update(
            AlgorithmSpecification={"TrainingImage": job.container.image},
            EnableNetworkIsolation=job.container.isolated,
        )
    if training:
        description.update(
            TrainingStartTime=_iso(training[0]),
            TrainingEndTime=_iso(over),
            TrainingTimeInSeconds=round(over - training[0], 3),
        )
    return description


def _host(host: str, end: HostEnd | None, layout: Layout) -> dict[str, Any]:
    found: dict[str, Any] = {"Host": host, "ExitCode": end.code if end else None, "Log": layout.log(host)}
    return {**found, "OOMKilled": True} if end and end.out_of_memory else found


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
