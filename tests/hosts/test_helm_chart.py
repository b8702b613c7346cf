"""The chart in deploy/helm, rendered by helm itself: valid by Kubernetes' schemas, without rights, and pods that meet.

``kubectl kustomize`` renders the bases beside it, which are then the same as what their files say.
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

READ = """
import json, sys
import kubernetes_validate, yaml

found = [each for each in yaml.safe_load_all(sys.stdin) if each]
for each in found:
    if each["kind"] == "JobSet":
        job = each["spec"]["replicatedJobs"][0]["template"]
        each = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **job}
    if each["apiVersion"] in ("v1", "batch/v1"):
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
Render = Callable[..., list[dict[str, Any]]]


def validated(bin_: Path, text: str) -> list[dict[str, Any]]:
    command = [bin_ / "python", "-c", READ]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture
def render(stack: Callable[[str], Path], root: Path, tmp_path: Path) -> Render:
    """What ``helm template`` makes of the chart with some values."""
    bin_ = stack("kubernetes")
    homes = {name: str(tmp_path) for name in ("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}

    def rendered(*words: str) -> list[dict[str, Any]]:
        command = [bin_ / "helm", "template", "digits", root / "deploy" / "helm" / "musterpoint", *words]
        done = subprocess.run(command, env=homes, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(done.stderr)
        return validated(bin_, done.stdout)

    return rendered


def template_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = found[-1]["spec"]
    spec = spec["replicatedJobs"][0]["template"]["spec"] if found[-1]["kind"] == "JobSet" else spec
    pod: dict[str, Any] = spec["template"]["spec"]
    return pod


def hosts(pod: dict[str, Any], index: int, name: str) -> tuple[str, ...]:
    (container,) = pod["containers"]
    said = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "JOB_COMPLETION_INDEX": str(index), "HOSTNAME": name, **said}
    return read_job(environ, from_environ(environ), "/nowhere", "train.py").hosts


def test_pods_of_the_job_find_each_other(render: Render) -> None:
    service, job = render("--set", "image=registry.example/digits:7,nodes=3")
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    pod = template_of([job])
    assert pod["subdomain"] == service["metadata"]["name"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 3
    assert job["spec"]["backoffLimit"] == 4 * 3 - 1, "a pod's failure is counted for every pod, in four attempts"
    assert hosts(pod, 1, "digits-1") == ("digits-0", "digits-1", "digits-2")


def test_pods_of_the_jobset_find_each_other(render: Render) -> None:
    (jobset,) = render("--set", "image=x,kind=jobset")
    names = ("digits-node-0-0", "digits-node-0-1")
    assert hosts(template_of([jobset]), 0, names[0]) == names
    assert jobset["spec"]["failurePolicy"] == {"maxRestarts": 3}


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_nothing_has_rights(render: Render, kind: str) -> None:
    found = render("--set", f"image=x,kind={kind}", *ALL)
    assert {each["kind"] for each in found} <= {"Service", "Job", "JobSet"}, "no role, no binding, no account"
    pod = template_of(found)
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 2000)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_every_value_arrives(render: Render) -> None:
    pod = template_of(render("--set", "image=x,kind=job", *ALL))
    (container,) = pod["containers"]
    said = {each["name"]: each.get("value") for each in container["env"]}
    assert (said["MUSTER_SLOTS"], said["NCCL_DEBUG"], said["MUSTER_STOP_GRACE"]) == ("8", "INFO", "105")
    (secret,) = (each for each in container["env"] if each["name"] == "MUSTER_SECRET")
    assert secret["valueFrom"] == {"secretKeyRef": {"name": "token", "key": "secret"}}
    assert container["args"] == ["train.py", "--epochs", "3"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["nodeSelector"] == {"pool": "gpus"}
    assert pod["tolerations"] == [{"key": "gpus", "operator": "Exists"}]
    assert {"name": "ml", "persistentVolumeClaim": {"claimName": "ml"}} in pod["volumes"]


@pytest.mark.parametrize(
    "words", ["nodes=2", "image=x,kind=pod", "image=x,nodes=0", "image=x,user=0", "image=x,node=2"]
)
def test_a_wrong_value_is_refused_by_name(render: Render, words: str) -> None:
    with pytest.raises(ValueError, match="don't meet the specifications of the schema"):
        render("--set", words)


@pytest.mark.parametrize("name", ["job", "jobset", "trainer"])
def test_the_bases_are_what_kustomize_makes(stack: Callable[[str], Path], root: Path, name: str) -> None:
    bin_, folder = stack("kubernetes"), root / "deploy" / "kustomize" / name
    made = subprocess.run([bin_ / "kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    files = "---\n".join(path.read_text() for path in folder.glob("*.yaml") if path.name != "kustomization.yaml")
    by_kind = [sorted(validated(bin_, text), key=lambda each: str(each["kind"])) for text in (made.stdout, files)]
    assert by_kind[0] == by_kind[1]
