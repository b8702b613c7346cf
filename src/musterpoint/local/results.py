"""Collects the results of a job that has ended: the artifacts of all hosts, and the job description.

The description is what DescribeTrainingJob would return. Statuses and fields are those of the `API`_ that make sense on
one machine; ``ExitCode``, ``Backend`` and ``Hosts`` are ours.

.. _API: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from datetime import datetime, timezone
from typing import Any, Iterator, Mapping, NamedTuple

from musterpoint.base.below import Archive, ForeignName, Tree, link_target
from musterpoint.core.job.fields import LARGEST_FILE
from musterpoint.core.report.files import write_file
from musterpoint.core.report.output_directory import TIMELINE, OutputDirectory
from musterpoint.local.job_request import LocalJob
from musterpoint.local.job_status import FinalStatus, Phase, transitions
from musterpoint.local.tree import BASE, Layout

REASON_LENGTH = 1024
PIECE = 1 << 20
"""Bytes of files that are compared at a time."""


class HostEnd(NamedTuple):
    """How a host ended.

    ``code``: its entry point's exit code.
    ``at``: when it ended, in seconds since the epoch.
    ``out_of_memory``: whether the whole host was killed because it ran out of memory.
    """

    code: int
    at: float
    out_of_memory: bool = False


ALGORITHM_ERROR = "AlgorithmError: "
"""How SageMaker's reasons begin where a job's program failed."""


class JobEnd(NamedTuple):
    """How the job ended.

    ``status``: its final status.
    ``code``: its exit code.
    ``reason``: its FailureReason, or empty.
    """

    status: FinalStatus
    code: int
    reason: str = ""


def job_end(
    ends: Mapping[str, HostEnd], left: Mapping[str, HostFiles], stopped: bool, head: str = ALGORITHM_ERROR
) -> JobEnd:
    """How the job ended. ``stopped``: the control plane stopped it. ``head``: how it begins the reason of a failure.

    A host's ``outcome.json`` counts before bare exit codes: a host that was killed has a code too, but the others know
    why the job ended.
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
    # SageMaker's own has ", exit code: 1" behind the last word, even where that is a line of the program's source
    suffix = "" if _names_code(text, code) else f"\nexit code {code}" if text else f"exit code {code}"
    return JobEnd("Failed", code, head + text[: REASON_LENGTH - len(head) - len(suffix)] + suffix)


def _names_code(text: str, code: int) -> bool:
    """Whether ``text`` says the exit code already."""
    return re.search(rf"\bexit code:? {code}\b", text) is not None


def describe(
    job: LocalJob, layout: Layout, backend: str, phases: list[Phase], ends: Mapping[str, HostEnd], end: JobEnd
) -> dict[str, Any]:
    """The content of ``job.json``. The last of ``phases`` is the final status."""
    training = [phase.start for phase in phases if phase.status == "Training"]
    passed: list[dict[str, Any]] = []
    for phase in phases:
        passed = transitions(passed, phase.status, iso(phase.start), phase.message)
    over = max((each.at for each in ends.values()), default=phases[-1].start)
    description: dict[str, Any] = {
        "TrainingJobName": job.name,
        "TrainingJobStatus": end.status,
        "SecondaryStatus": phases[-1].status,
        "ExitCode": end.code,
    }
    if end.reason:
        description["FailureReason"] = end.reason
    description.update(
        ModelArtifacts={"S3ModelArtifacts": "file://" + layout.artifact("model.tar.gz")},
        OutputDataConfig={"S3OutputPath": "file://" + layout.output},
        ResourceConfig={"InstanceType": "local", "InstanceCount": len(job.hosts)},
        Backend=backend,
        CreationTime=iso(phases[0].start),
        LastModifiedTime=iso(phases[-1].start),
        SecondaryStatusTransitions=passed,
        Hosts=[{**_host(host, ends.get(host), layout), **_role(job, host)} for host in job.hosts],
    )
    if job.container:
        description.update(
            AlgorithmSpecification={"TrainingImage": job.container.image}, EnableNetworkIsolation=job.container.isolated
        )
    if training:
        description.update(
            TrainingStartTime=iso(training[0]),
            TrainingEndTime=iso(over),
            TrainingTimeInSeconds=round(over - training[0], 3),
        )
    return description


def _host(host: str, end: HostEnd | None, layout: Layout) -> dict[str, Any]:
    found: dict[str, Any] = {"Host": host, "ExitCode": end.code if end else None, "Log": layout.log(host)}
    return {**found, "OOMKilled": True} if end and end.out_of_memory else found


def iso(at: float) -> str:
    """``at``, in seconds since the epoch, as ``job.json`` has it."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


ARTIFACTS = {"model.tar.gz": "model", "output.tar.gz": "output/data"}
"""Archives, and the directory of each host's tree that goes into them."""


class HostFiles(NamedTuple):
    """The result files of one host.

    ``outcome``: the content of its outcome.json; None: it wrote none.
    ``failure``: the beginning of its failure file; empty: it wrote none.
    """

    outcome: dict[str, Any] | None = None
    failure: str = ""


def read_host_files(layout: Layout, host: str) -> HostFiles:
    """Reads the result files of ``host``. Anything in its tree that isn't a regular file is ignored."""
    outcome = _json(layout, host, "output/outcome.json")
    failure = _bytes(layout, host, "output/failure", 4096).decode("utf-8", "replace")
    return HostFiles(outcome if isinstance(outcome, dict) else None, failure)


def failed_before_the_roll_call(layout: Layout, host: str) -> bool:
    """Whether musterpoint itself failed on ``host``, such as on a port that is taken, before it met any other host."""
    outcome = read_host_files(layout, host).outcome
    if outcome is None or outcome.get("cause") != "muster":
        return False
    moments = _json(layout, host, f"output/{TIMELINE}")
    events = (
        [moment.get("event") for moment in moments if isinstance(moment, dict)] if isinstance(moments, list) else []
    )
    return bool(events) and not {"rollcall-done", "rollcall-failed"}.intersection(events)


def _role(job: LocalJob, host: str) -> dict[str, str]:
    return {"Role": job.role_of[host]} if host in job.role_of else {}


def has_model(layout: Layout, hosts: tuple[str, ...]) -> bool:
    """Whether a host has left anything for the model's archive."""
    return any(True for host in hosts for _ in _files(_tree(layout, host), ARTIFACTS["model.tar.gz"]))


def write_archives(layout: Layout, hosts: tuple[str, ...]) -> list[str]:
    """Writes the archives of :data:`ARTIFACTS`, hosts merged; a sentence for each file that clashed or is left out."""
    warnings = []
    for name, directory in ARTIFACTS.items():
        path = layout.artifact(name)
        kept: dict[str, tuple[str, Tree]] = {}
        try:
            with Archive(path + ".part") as tar:
                for host in hosts:
                    tree = _tree(layout, host)
                    if gone := _gone(tree, directory):
                        warnings.append(f"{name}: {directory} of {host} is left out: {gone}")
                    for file, _ in _files(tree, directory):
                        member = file.removeprefix(f"{directory}/")
                        if member not in kept:
                            kept[member] = (host, tree)
                            warnings += _add(tar, name, host, member, tree, file)
                        elif not _same(kept[member][1], tree, file):
                            one = kept[member][0]
                            warnings.append(
                                f"{name}: {one} and {host} both left {member}, and not the same; kept {one}'s"
                            )
            os.replace(path + ".part", path)
        except OSError as error:
            where = os.path.join(layout.hosts, "*", "opt", "ml", directory)
            warnings.append(f"{name} can't be written: {error.strerror or error}; what would be in it lies in {where}")
            with contextlib.suppress(OSError):
                os.unlink(path + ".part")
    return warnings


def _add(tar: Archive, name: str, host: str, member: str, tree: Tree, file: str) -> list[str]:
    """Puts ``file`` into the archive; a sentence where it can't be read, or is a link that leads out of the directory.
    An OSError: the archive can't be written.
    """
    try:
        target = tree.target(file)
        tree.pack(file, tar, member, "" if target is None else _inside(member, target, file, tree))
    except ForeignName as error:
        return [f"{name}: {member} of {host} is left out: {error}"]
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return [f"{name}: {member} of {host} is left out: {error.strerror or error}"]
    return []


def _inside(member: str, target: str, file: str, tree: Tree) -> str:
    """The target of a link within the archive's directory, relative; the program may have given it as an absolute one.

    Raises:
        ForeignName: it leads out of the directory.
    """
    directory = file.removesuffix(f"/{member}")
    for root in (BASE, tree.root) if os.path.isabs(target) else ():
        if target.startswith(f"{root}/{directory}/"):
            target = os.path.relpath(target.removeprefix(f"{root}/{directory}/"), os.path.dirname(member) or ".")
    link_target(member, target)
    return target


def write_timeline(
    layout: Layout, hosts: tuple[str, ...], own: list[dict[str, Any]], directory: OutputDirectory
) -> str:
    """Writes ``timeline.json`` into ``directory``: the events of every host and of the control plane (``own``).

    Returns why it couldn't be written, as a sentence; empty on success.
    """
    moments = list(own)
    for host in hosts:
        events = _json(layout, host, f"output/{TIMELINE}")
        if isinstance(events, list):
            moments.extend(moment for moment in events if isinstance(moment, dict))
    moments.sort(key=lambda moment: moment["at"] if isinstance(moment.get("at"), (int, float)) else 0.0)
    text = ",\n".join(json.dumps(moment) for moment in moments)
    return write_file(directory, TIMELINE, f"[\n{text}\n]\n".encode())


def _tree(layout: Layout, host: str) -> Tree:
    """The host's tree, in its own folder: a link that the job has put in its place isn't followed."""
    within = os.path.relpath(layout.tree(host), layout.hosts)
    return Tree(os.path.join(os.path.realpath(layout.hosts), within))


def _gone(tree: Tree, folder: str) -> str:
    """Why a host's ``folder`` can't be packed; empty: it can, or there is none."""
    try:
        os.close(tree.open_root())
    except FileNotFoundError:
        return ""
    except OSError:
        return f"{tree.root} is no folder any more"
    return "it is no folder any more" if tree.facts(folder) is not None and not tree.is_folder(folder) else ""


def _files(tree: Tree, folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every folder, file and link below a ``folder`` of a host's tree. What a host has put in the folder's place isn't
    followed.
    """
    for file, facts in tree.walk(folder):
        if stat.S_ISDIR(facts.st_mode) or stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode):
            yield file, facts


def _same(one: Tree, other: Tree, file: str) -> bool:
    """Tells whether two hosts have left the same folder, link or content of a file."""
    if one.is_folder(file) and other.is_folder(file):
        return True
    if (target := one.target(file)) is not None:
        return other.target(file) == target
    try:
        with one.file(file) as first, other.file(file) as second:
            while (piece := first.read(PIECE)) == second.read(PIECE):
                if not piece:
                    return True
    except OSError:
        pass
    return False


def _json(layout: Layout, host: str, name: str) -> Any:
    """The JSON value of a file in the host's tree; None if there is none."""
    try:
        return json.loads(_bytes(layout, host, name, LARGEST_FILE))
    except (ValueError, RecursionError):
        return None


def _bytes(layout: Layout, host: str, name: str, most: int) -> bytes:
    try:
        return _tree(layout, host).read(name, most) or b""
    except OSError:
        return b""
