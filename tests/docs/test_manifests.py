"""The quickstart's manifests: valid by Kubernetes' own schemas where it has them, and their pods know their job."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.settings import from_environ
from musterpoint.core.job.read import read_job

from . import commands
from .blocks import ROOT, blocks_of

READ = """
import json, sys
import kubernetes_validate, yaml

texts = json.load(sys.stdin)
found = {name: list(yaml.safe_load_all(text)) for name, text in texts.items()}
for each in found["the job's pods"]:
    for version in ("1.31", "1.37"):
        kubernetes_validate.validate(each, version, strict=True)
job = found["the jobset's pods"][0]["spec"]["replicatedJobs"][0]["template"]
whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **job}
kubernetes_validate.validate(whole, "1.37", strict=True)
print(json.dumps(found))
"""
Manifests = dict[str, list[dict[str, Any]]]
KUBELET = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture(scope="module")
def manifests(stack: Callable[[str], Path]) -> Manifests:
    page = ROOT / "docs" / "quickstart" / "kubernetes.md"
    texts = {block.how[0]: block.text for block in blocks_of(page) if block.language == "yaml"}
    command = [stack("kubernetes") / "python", "-c", READ]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: Manifests = json.loads(done.stdout)
    return found


def pods_of(job: dict[str, Any], name: str) -> Iterator[dict[str, str]]:
    """What the pods of a Job are told: by the manifest, the Job controller and the kubelet."""
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"][0] == "muster"
    commands.parse(container["command"][1:])
    said = {each["name"]: each["value"] for each in container["env"]}
    for index in range(job["completions"]):
        yield {**KUBELET, **said, "JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{name}-{index}"}


def hosts_of(pod: dict[str, str]) -> tuple[str, ...]:
    return read_job(pod, from_environ(pod), "/nowhere", "train.py").hosts


def test_the_jobs_pods(manifests: Manifests) -> None:
    service, job = manifests["the job's pods"]  # <!-- the job's pods
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"] == job["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert [hosts_of(pod) for pod in pods_of(job["spec"], "digits")] == [("digits-0", "digits-1")] * 2


def test_the_jobsets_pods(manifests: Manifests) -> None:
    (jobset,) = manifests["the jobset's pods"]  # <!-- the jobset's pods
    (replicated,) = jobset["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1, "pods of several Jobs would be numbered from 0 in each"
    name = f"{jobset['metadata']['name']}-{replicated['name']}-0"
    pods = list(pods_of(replicated["template"]["spec"], name))
    assert [hosts_of(pod) for pod in pods] == [(f"{name}-0", f"{name}-1")] * 2


def test_the_trainjobs_pods(manifests: Manifests) -> None:
    """The names are those that the trainer's torch plugin gives (kubeflow/trainer, ``pkg/runtime/framework``)."""
    (job,) = manifests["the trainjob's pods"]  # <!-- the trainjob's pods
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    commands.parse([*trainer["command"][1:], *trainer["args"]])
    pod = {
        **KUBELET, "PET_NNODES": str(trainer["numNodes"]), "PET_NODE_RANK": "1", "JOB_COMPLETION_INDEX": "1",
        "PET_MASTER_ADDR": f"{name}-node-0-0.{name}", "PET_MASTER_PORT": "29500", "PET_NPROC_PER_NODE": "auto",
    }  # fmt: skip
    assert hosts_of(pod) == ("digits-node-0-0.digits", "digits-node-0-1.digits")
    (runtime,) = {job["spec"]["runtimeRef"]["name"]}
    assert f"name: {runtime}\n" in (ROOT / "docs" / "kubernetes.md").read_text()
