"""The bases in deploy/: valid by Kubernetes' and Kubeflow Trainer's own schemas, and pods find each other by them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.base.settings import from_environ
from musterpoint.core.job.read import read_job

pytestmark = pytest.mark.xdist_group("kubernetes")

CHECK = """
import json, sys
from pathlib import Path
import kubernetes_validate, yaml
from kubeflow_trainer_api import models

found = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert kustomization["kind"] == "Kustomization"
    assert sorted([*kustomization["resources"], "kustomization.yaml"]) == sorted(path.name for path in folder.iterdir())
    found[folder.name] = [yaml.safe_load((folder / name).read_text()) for name in kustomization["resources"]]
for each in found["job"]:
    for version in ("1.31", "1.37"):
        kubernetes_validate.validate(each, version, strict=True)
(jobset,) = found["jobset"]
for replicated in jobset["spec"]["replicatedJobs"]:
    whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **replicated["template"]}
    kubernetes_validate.validate(whole, "1.37", strict=True)
(runtime,) = found["trainer"]
made = models.TrainerV1alpha1ClusterTrainingRuntime.from_dict(runtime).to_dict()
for key in ("mlPolicy", "template"):
    assert set(runtime["spec"][key]) <= set(made["spec"][key]), (key, made["spec"][key])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def bases(stack: Callable[[str], Path], root: Path) -> dict[str, Any]:
    command = [stack("kubernetes") / "python", "-c", CHECK, root / "deploy" / "kustomize"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def environ_of(template: dict[str, Any]) -> dict[str, str]:
    (container,) = template["spec"]["containers"]
    return {"KUBERNETES_SERVICE_HOST": "10.96.0.1", **{each["name"]: each["value"] for each in container["env"]}}


def hosts(environ: dict[str, str]) -> tuple[str, ...]:
    return read_job(environ, from_environ(environ), "/nowhere", "train.py").hosts


def test_pods_of_the_job_find_each_other(bases: dict[str, Any]) -> None:
    service, job = bases["job"]
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    environ = environ_of(job["spec"]["template"])
    assert environ["MUSTER_NNODES"] == str(job["spec"]["completions"]) == str(job["spec"]["parallelism"])
    assert hosts({**environ, "JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-1"}) == ("train-0", "train-1")


def test_pods_of_the_jobset_find_each_other(bases: dict[str, Any]) -> None:
    (jobset,) = bases["jobset"]
    (replicated,) = jobset["spec"]["replicatedJobs"]
    environ = environ_of(replicated["template"]["spec"]["template"])
    assert environ["MUSTER_NNODES"] == str(replicated["template"]["spec"]["completions"])
    names = ("train-node-0-0", "train-node-0-1")
    assert hosts({**environ, "JOB_COMPLETION_INDEX": "0", "HOSTNAME": names[0]}) == names


@pytest.mark.parametrize("name", ["job", "jobset"])
def test_pods_have_no_rights(bases: dict[str, Any], name: str) -> None:
    spec = bases[name][-1]["spec"]
    spec = spec["replicatedJobs"][0]["template"]["spec"] if name == "jobset" else spec
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert (pod["securityContext"]["runAsNonRoot"], container["securityContext"]["readOnlyRootFilesystem"]) == (
        True,
        True,
    )
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
