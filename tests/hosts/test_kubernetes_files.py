"""The bases and the chart in deploy/: valid by Kubernetes' and Kubeflow Trainer's own schemas, without rights, and pods
that meet. helm renders the chart, and kubectl the bases, which are then the same as what their files say.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.settings import from_environ
from musterpoint.core.job.read import read_job

pytestmark = pytest.mark.xdist_group("kubernetes")

READ = """
import json, sys
import kubernetes_validate, yaml
from kubeflow_trainer_api import models

found = [each for each in yaml.safe_load_all(sys.stdin) if each]
for each in found:
    if each["kind"] == "JobSet":
        job = each["spec"]["replicatedJobs"][0]["template"]
        each = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **job}
    if each["kind"] == "ClusterTrainingRuntime":
        made = models.TrainerV1alpha1ClusterTrainingRuntime.from_dict(each).to_dict()
        for key in ("mlPolicy", "template"):
            assert set(each["spec"][key]) <= set(made["spec"][key]), (key, made["spec"][key])
    elif each["kind"] != "Kustomization":
        for version in ("1.31", "1.37"):
            kubernetes_validate.validate(each, version, strict=True)
print(json.dumps(found))
"""
ALL = (
    "--set", "slots=8,secret=token,restarts=1,user=2000,resources.limits.nvidia\\.com/gpu=8",
    "--set-json", 'imagePullSecrets=[{"name": "registry"}]', "--set-json", 'nodeSelector={"pool": "gpus"}',
    "--set-json", 'tolerations=[{"key": "gpus", "operator": "Exists"}]',
    "--set-json", 'env=[{"name": "NCCL_DEBUG", "value": "INFO"}]', "--set-json", 'program=["train.py", "--epochs", 3]',
    "--set-json", 'opt={"emptyDir": null, "persistentVolumeClaim": {"claimName": "ml"}}',
)  # fmt: skip
Objects = list[dict[str, Any]]


class Deploy:
    """The objects of the folder ``deploy``, validated."""

    def __init__(self, bin_: Path, folder: Path, home: Path) -> None:
        self.bin, self.folder = bin_, folder
        names = ("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        self.environ = dict.fromkeys(names, str(home))

    def validated(self, text: str) -> Objects:
        command = [self.bin / "python", "-c", READ]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: Objects = json.loads(done.stdout)
        return found

    def run(self, *words: str | Path) -> Objects:
        """What helm or kubectl makes; a ValueError where it refuses to."""
        command = [self.bin / words[0], *words[1:]]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(done.stderr)
        return self.validated(done.stdout)

    def chart(self, *words: str) -> Objects:
        return self.run("helm", "template", "digits", self.folder / "helm" / "musterpoint", *words)

    def base(self, name: str) -> Objects:
        return self.run("kubectl", "kustomize", self.folder / "kustomize" / name)


@pytest.fixture
def deploy(stack: Callable[[str], Path], root: Path, tmp_path: Path) -> Deploy:
    return Deploy(stack("kubernetes"), root / "deploy", tmp_path)


MADE: dict[str, tuple[Callable[[Deploy], Objects], tuple[str, ...]]] = {
    "job": (lambda deploy: deploy.base("job"), ("train-0", "train-1")),
    "jobset": (lambda deploy: deploy.base("jobset"), ("train-node-0-0", "train-node-0-1")),
    "the chart's job": (
        lambda deploy: deploy.chart("--set", "image=x,nodes=3"), ("digits-0", "digits-1", "digits-2")),
    "the chart's jobset": (
        lambda deploy: deploy.chart("--set", "image=x,kind=jobset"), ("digits-node-0-0", "digits-node-0-1")),
    "with all values": (lambda deploy: deploy.chart("--set", "image=x,kind=job", *ALL), ("digits-0", "digits-1")),
}  # fmt: skip
"""How the objects are made, and the pods' names."""


def jobs(found: Objects) -> dict[str, Any]:
    """The specification of the Job."""
    (made,) = (each["spec"] for each in found if each["kind"] in ("Job", "JobSet"))
    spec: dict[str, Any] = made["replicatedJobs"][0]["template"]["spec"] if "replicatedJobs" in made else made
    return spec


@pytest.mark.parametrize("name", MADE)
def test_pods_find_each_other_and_have_no_rights(deploy: Deploy, name: str) -> None:
    make, names = MADE[name]
    found = make(deploy)
    job = jobs(found)
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert {each["kind"] for each in found} <= {"Service", "Job", "JobSet"}, "no role, no binding, no account"
    for service in (each for each in found if each["kind"] == "Service"):
        assert service["metadata"]["name"] == pod["subdomain"]
        assert list(service["spec"]["selector"]) == ["job-name"]
    said = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    assert said["MUSTER_NNODES"] == str(job["completions"]) == str(job["parallelism"]) == str(len(names))
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "JOB_COMPLETION_INDEX": "1", "HOSTNAME": names[1], **said}
    assert read_job(environ, from_environ(environ), "/nowhere", "train.py").hosts == names
    assert (pod["automountServiceAccountToken"], "serviceAccountName" in pod) == (False, False)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


def test_a_pods_failure_is_counted_for_every_pod_in_four_attempts(deploy: Deploy) -> None:
    assert jobs(deploy.chart("--set", "image=x,nodes=3"))["backoffLimit"] == 4 * 3 - 1
    (jobset,) = deploy.chart("--set", "image=x,kind=jobset")
    assert jobset["spec"]["failurePolicy"] == {"maxRestarts": 3}


def test_every_value_arrives(deploy: Deploy) -> None:
    pod = jobs(deploy.chart("--set", "image=x,kind=job", *ALL))["template"]["spec"]
    (container,) = pod["containers"]
    said = {each["name"]: each.get("value") for each in container["env"]}
    assert (said["MUSTER_SLOTS"], said["NCCL_DEBUG"], said["MUSTER_STOP_GRACE"]) == ("8", "INFO", "105")
    (secret,) = (each for each in container["env"] if each["name"] == "MUSTER_SECRET")
    assert secret["valueFrom"] == {"secretKeyRef": {"name": "token", "key": "secret"}}
    assert container["args"] == ["train.py", "--epochs", "3"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert pod["securityContext"]["runAsUser"] == 2000
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["nodeSelector"] == {"pool": "gpus"}
    assert pod["tolerations"] == [{"key": "gpus", "operator": "Exists"}]
    assert {"name": "ml", "persistentVolumeClaim": {"claimName": "ml"}} in pod["volumes"]


@pytest.mark.parametrize(
    "words", ["nodes=2", "image=x,kind=pod", "image=x,nodes=0", "image=x,user=0", "image=x,node=2"]
)
def test_a_wrong_value_is_refused(deploy: Deploy, words: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        deploy.chart("--set", words)


@pytest.mark.parametrize("name", ["job", "jobset", "trainer"])
def test_the_bases_are_what_their_files_say(deploy: Deploy, name: str) -> None:
    folder = deploy.folder / "kustomize" / name
    text = "---\n".join(path.read_text() for path in sorted(folder.iterdir()) if path.name != "kustomization.yaml")
    both = deploy.base(name), deploy.validated(text)
    made, files = (sorted(each, key=lambda one: str(one["kind"])) for each in both)
    assert made == files
