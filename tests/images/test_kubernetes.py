"""The manifest in docs/kubernetes.md: its form, what its policy makes of our codes, and its pods as containers.

Docker runs the pods with what the kubelet would give them: the manifest's command, variables, user and volumes, a root
that can't be written, the names of the headless Service, and a file for the termination message.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import docker
import pytest

from musterpoint.base import exit_codes

from .containers import LABEL, Host

pytestmark = pytest.mark.xdist_group("kubernetes")

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes.md"
VERSIONS = ("1.31", "1.34", "1.37")
"""Of Kubernetes; the pod failure policy is stable since 1.31."""
READ = """
import json, sys
import kubernetes_validate, yaml

found = list(yaml.safe_load_all(sys.stdin))
for each in found:
    for version in sys.argv[1:]:
        kubernetes_validate.validate(each, version, strict=True)
print(json.dumps(found))
"""
PROGRAM = """
import os, pathlib, signal, sys, time

def refused(path):
    try:
        pathlib.Path(path).touch()
    except OSError:
        return True

os.makedirs(os.environ["SM_MODEL_DIR"], exist_ok=True)
model = pathlib.Path(os.environ["SM_MODEL_DIR"])
pathlib.Path("/tmp/mine").touch()
pathlib.Path("/dev/shm/mine").write_bytes(bytes(100 << 20))
os.unlink("/dev/shm/mine")
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", os.environ["SM_CURRENT_HOST"],
      "with", sys.argv[1:], "as", os.getuid(), "in", os.getcwd(), refused("/app/x"), refused("/etc/x"), flush=True)
how = os.environ["HOW"]
if how == "fails" and os.environ["RANK"] == "1":
    raise LookupError("no such shard")
if how != "ends":
    def save(signo, frame):
        (model / "checkpoint").touch()
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    print("trains", flush=True)
    while True:
        time.sleep(0.05)
"""


def manifest_of_page() -> str:
    (text,) = re.findall(r"<!-- the manifest[^>]*-->\n```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(text)


def validated(stack: Callable[[str], Path], text: str) -> dict[str, dict[str, Any]]:
    """The objects of a manifest by kind, after the validation by Kubernetes' own schemas."""
    command = [stack("kubernetes") / "python", "-c", READ, *VERSIONS]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return {each["kind"]: each for each in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def manifest(stack: Callable[[str], Path]) -> dict[str, dict[str, Any]]:
    return validated(stack, manifest_of_page())


def test_the_container_of_a_check_fits_the_jobs_pods(stack: Callable[[str], Path]) -> None:
    page = PAGE.with_name("check.md").read_text()
    (text,) = re.findall(r"```yaml\n(      initContainers:\n.*?)```", page, re.DOTALL)
    whole = manifest_of_page().replace("      containers:\n", f"{text}      containers:\n")
    pod = validated(stack, whole)["Job"]["spec"]["template"]["spec"]
    (check,), (train,) = pod["initContainers"], pod["containers"]
    assert check["command"][:2] == ["muster", "check"]
    assert variables(check).items() <= variables(train).items()
    assert all(mount in train["volumeMounts"] for mount in check["volumeMounts"])


def test_what_the_api_server_asks_beyond_its_schemas(manifest: dict[str, dict[str, Any]]) -> None:
    job, service = manifest["Job"]["spec"], manifest["Service"]
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never", "a pod failure policy needs it"
    assert job["podFailurePolicy"]["rules"]
    for rule in job["podFailurePolicy"]["rules"]:
        assert rule["action"] in ("FailJob", "Ignore", "Count")
        assert ("onExitCodes" in rule) != ("onPodConditions" in rule)
        if codes := rule.get("onExitCodes"):
            assert codes["containerName"] in [container["name"] for container in pod["containers"]]
            assert codes["values"] == sorted(set(codes["values"]))
            assert 0 not in codes["values"]
    assert service["spec"]["selector"] == {"job-name": manifest["Job"]["metadata"]["name"]}
    assert service["spec"]["clusterIP"] == "None"
    assert pod["subdomain"] == service["metadata"]["name"]
    assert variables(pod["containers"][0])["MUSTER_NNODES"] == str(job["completions"]) == str(job["parallelism"])
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes
    (grace,) = (int(each["value"]) for each in pod["containers"][0]["env"] if each["name"] == "MUSTER_STOP_GRACE")
    assert 0 < pod["terminationGracePeriodSeconds"] - grace <= 30


def test_the_runtimes_pods_know_their_job(stack: Callable[[str], Path], python: str, environ: dict[str, str]) -> None:
    """By the variables that the trainer's torch plugin gives the pods of the page's TrainJob."""
    (text,) = re.findall(r"<!-- the runtime[^>]*-->\n```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    read = [
        stack("kubernetes") / "python",
        "-c",
        "import json, sys, yaml; print(json.dumps([*yaml.safe_load_all(sys.stdin)]))",
    ]
    runtime, job = json.loads(subprocess.run(read, input=text, capture_output=True, text=True, check=True).stdout)
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert replicated["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    assert (replicated["name"], container["name"]) == ("node", "node"), "names follow from these"
    assert container["command"] == ["muster", "launch"]
    name, nodes = job["metadata"]["name"], job["spec"]["trainer"]["numNodes"]
    given = {
        **variables(container), "PET_NNODES": str(nodes), "PET_NODE_RANK": "1", "JOB_COMPLETION_INDEX": "1",
        "PET_NPROC_PER_NODE": runtime["spec"]["mlPolicy"]["torch"]["numProcPerNode"],
        "PET_MASTER_ADDR": f"{name}-node-0-0.{name}", "PET_MASTER_PORT": "29500",
    }  # fmt: skip
    command = [python, "-m", "musterpoint", "plan", "--json", "--launcher", "ranks", __file__]
    done = subprocess.run(command, env={**environ, **given}, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    hosts = [host["host"] for host in json.loads(done.stdout)["hosts"]]
    assert hosts == [f"{name}-node-0-{pod}.{name}" for pod in range(nodes)]


def action(policy: dict[str, Any], code: int, disrupted: bool = False) -> str:
    """What the Job controller does about a failed pod: the first rule that fits, or it counts."""
    for rule in policy["rules"]:
        conditions = [condition["type"] for condition in rule.get("onPodConditions", [])]
        codes = rule.get("onExitCodes", {"operator": "In", "values": []})
        if (disrupted and "DisruptionTarget" in conditions) or (code in codes["values"]) == (codes["operator"] == "In"):
            return str(rule["action"])
    return "Count"


def test_every_code_of_ours_gets_the_action_that_the_page_tells(manifest: dict[str, dict[str, Any]]) -> None:
    policy = manifest["Job"]["spec"]["podFailurePolicy"]
    told = dict(re.findall(r"^\| (\w+|`\w+`) \|[^|]+\| (\w+) \|", PAGE.read_text(), re.MULTILINE))
    ours = [value for name, value in vars(exit_codes).items() if name.isupper() and value != exit_codes.OK]
    assert {code: action(policy, code) for code in [*ours, 137]} == {
        int(c): a for c, a in told.items() if c.isdecimal()
    }
    assert (action(policy, 1), action(policy, 9, disrupted=True)) == (told["others"], told["`DisruptionTarget`"])


class Pod(NamedTuple):
    """A pod as a container; ``message`` is its termination message's file, ``ml`` its volume at /opt/ml."""

    host: Host
    message: Path
    ml: Path


class Pods:
    """The pods of the manifest's Job, by index."""

    def __init__(
        self, client: docker.DockerClient, folder: Path, image: str, objects: dict[str, dict[str, Any]]
    ) -> None:
        self.labels = {LABEL: f"muster-test-{uuid.uuid4().hex[:12]}"}
        self.job = objects["Job"]
        (folder / "app").mkdir()
        (folder / "app" / "train.py").write_text(PROGRAM)
        self.client, self.folder, self.image = client, folder, image
        self.network = client.networks.create(self.labels[LABEL], driver="bridge", labels=self.labels)
        self.pods: list[Pod] = []

    def start(self, **environ: str) -> list[Pod]:
        for index in range(self.job["spec"]["completions"]):
            self.pods.append(self._pod(index, environ))
        for pod in self.pods:
            pod.host.start()
        return self.pods

    def _pod(self, index: int, environ: dict[str, str]) -> Pod:
        spec = self.job["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        place = self.folder / f"pod-{index}"
        ml, message = place / "ml", place / "message"
        (ml / "checkpoints").mkdir(parents=True)
        subprocess.run(["mkfifo", ml / "checkpoints" / "go"], check=True)
        message.touch()
        message.chmod(0o666)
        binds = {str(message): container["terminationMessagePath"], str(self.folder / "app"): container["workingDir"]}
        memory = {}
        volumes = {volume["name"]: volume["emptyDir"] for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            if volumes[mount["name"]].get("medium") == "Memory":
                size = volumes[mount["name"]]["sizeLimit"].removesuffix("i").lower()
                memory[mount["mountPath"]] = f"size={size},mode=1777"
            else:
                (place / mount["name"]).mkdir(exist_ok=True)
                (place / mount["name"]).chmod(0o777)
                binds[str(place / mount["name"])] = mount["mountPath"]
        own, whole = container["securityContext"], spec["securityContext"]
        name = f"{self.job['metadata']['name']}-{index}"
        domain = f"{spec['subdomain']}.default.svc.cluster.local"
        alias = self.client.api.create_endpoint_config(aliases=[f"{name}.{spec['subdomain']}"])
        of_kubelet = {"JOB_COMPLETION_INDEX": str(index), "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
        made = self.client.containers.create(
            self.image, entrypoint=container["command"], name=f"{self.labels[LABEL]}-{index}", hostname=name,
            domainname=domain, labels=self.labels, network=self.network.name,
            networking_config={self.network.name: alias},
            environment={**variables(container), **of_kubelet, **environ},
            user=f"{whole['runAsUser']}:{whole['runAsGroup']}", read_only=own["readOnlyRootFilesystem"],
            cap_drop=own["capabilities"]["drop"], security_opt=["no-new-privileges"], tmpfs=memory,
            volumes={path: {"bind": inside} for path, inside in binds.items()}, working_dir=container["workingDir"],
            mem_limit=container["resources"]["limits"]["memory"].removesuffix("i").lower(),
        )  # fmt: skip
        return Pod(Host(made, name, ml), message, ml)

    def remove(self) -> None:
        with contextlib.ExitStack() as last:
            last.callback(self.network.remove)
            for pod in self.pods:
                print(f"--- {pod.host.name}: exit code {pod.host.code}\n{pod.host.log[-20000:]}")
                last.callback(pod.host.remove)


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"]}


@pytest.fixture
def pods(
    engine: docker.DockerClient, image: Callable[[str], str], manifest: dict[str, dict[str, Any]], tmp_path: Path
) -> Iterator[Pods]:
    made = Pods(engine, tmp_path, image("base"), manifest)
    yield made
    made.remove()


def test_the_pods_of_the_manifest_meet_and_end(pods: Pods) -> None:
    for number, pod in enumerate(pods.start(HOW="ends")):
        assert pod.host.end() == 0
        place = f"rank {number} of 2 on train-{number}.train"
        assert f"{place} with ['--epochs', '3'] as 1000 in /app True True" in pod.host.log
        assert pod.message.read_text() == ""
        assert (pod.ml / "output" / "success").exists()


def test_a_failure_is_every_pods_termination_message(pods: Pods) -> None:
    for pod in pods.start(HOW="fails"):
        assert pod.host.end() == 1
        assert pod.message.read_text() == pod.host.reason
        assert pod.host.reason.startswith(
            "LookupError: no such shard\nrank 1 (local rank 0) on train-1.train, exit code 1"
        )


def test_a_pod_that_is_evicted_stops_the_other(pods: Pods) -> None:
    """With the manifest's grace, and codes that its policy takes for no failure of the job."""
    spec = pods.job["spec"]
    both = pods.start(HOW="waits")
    for pod in both:
        pod.host.saw("trains")
    both[1].host.stop(spec["template"]["spec"]["terminationGracePeriodSeconds"])
    for pod in both:
        assert action(spec["podFailurePolicy"], pod.host.end()) == "Ignore"
        assert pod.host.code == 143
        assert (pod.ml / "model" / "checkpoint").exists()
        assert pod.message.read_text() == "stopped by the platform on train-1.train"
