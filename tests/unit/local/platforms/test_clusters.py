"""Platforms that start one command per host, as ``muster local`` plays them: readers find the job asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import from_environ
from musterpoint.core.job.read import read_job
from musterpoint.local.job_request import LocalJob
from musterpoint.local.platforms import played
from musterpoint.local.platforms.local_platform import LocalPlatform, PlayedHost
from musterpoint.local.tree import Layout

JOBS: list[tuple[str, dict[str, object], int | None]] = [
    ("slurm", {}, None),
    ("kubernetes", {}, None),
    ("kubeflow", {}, None),
    ("kubeflow", {"runtime": "torch", "numProcPerNode": 4}, 4),
    ("kubeflow", {"runtime": "jax"}, None),
    ("kubeflow", {"runtime": "xgboost"}, None),
    *((name, {}, None) for name in ("volcano", "skypilot", "dstack", "pbs", "lsf", "tfconfig")),
]
COUNTED = ("lws", "hyperpod", "awsbatch", "azurebatch", "flux", "nomad")
"""Platforms whose hosts learn each other's names in the roll call."""
ALONE = {"tfconfig", "hyperpod"}
"""Platforms that give a job's only host no variables."""


def hosts_of(platform: LocalPlatform, folder: Path, distribution: dict[str, object], number: int) -> list[PlayedHost]:
    names = platform.host_names(number, "algo")
    made = LocalJob(
        "train-1", names, "t.py", str(folder), distribution=platform.read_distribution(distribution, number)
    )
    return [PlayedHost(made, name, Layout(str(folder)), {}, str(folder / name)) for name in names]


def made_for(host: PlayedHost, folder: Path) -> None:
    """The file of hosts that is in the host's tree on PBS."""
    (folder / host.name).mkdir()
    (folder / host.name / "nodefile").write_text("".join(f"{name}\n" * 2 for name in host.job.hosts))


@pytest.mark.parametrize("number", [1, 2, 11])
@pytest.mark.parametrize(("name", "distribution", "slots"), JOBS)
def test_every_host_finds_its_place(
    name: str, distribution: dict[str, object], slots: int | None, number: int, tmp_path: Path
) -> None:
    platform = played(name)
    if number == 1 and name in ALONE:
        name = "plain"
    for host in hosts_of(platform, tmp_path, distribution, number):
        made_for(host, tmp_path)
        environ = platform.environment(host)
        hosts_file = tmp_path / "hosts"
        hosts_file.write_text(f"10.0.0.1 {host.name}\n")
        environ["MUSTER_HOSTS_FILE"] = str(hosts_file)
        job = read_job(environ, from_environ(environ), "", "t.py")
        if name == "plain":
            assert len(job.hosts) == 1
            continue
        assert (job.platform, job.hosts, job.current_host) == (name, host.job.hosts, host.name)
        assert (job.distribution.processes_per_host, job.paths.base) == (slots, host.tree)


@pytest.mark.parametrize("number", [1, 2, 11])
@pytest.mark.parametrize("name", COUNTED)
def test_every_counted_host_finds_its_place_and_the_first(name: str, number: int, tmp_path: Path) -> None:
    platform = played(name)
    hosts = hosts_of(platform, tmp_path, {}, number)
    for host in hosts:
        environ = platform.environment(host)
        job = read_job(environ, from_environ(environ), "", "t.py")
        assert (job.platform, len(job.hosts)) == ("plain" if number == 1 and name in ALONE else name, number)
        if job.unnamed is not None:
            assert job.unnamed.node_rank in (host.rank, None)
            assert job.unnamed.leader == hosts[0].name or not host.rank


def test_the_host_gets_the_command_that_a_manifest_has(tmp_path: Path) -> None:
    for name in ("slurm", "kubernetes", "kubeflow"):
        platform = played(name)
        (host, _) = hosts_of(platform, tmp_path, {}, 2)
        (process,) = platform.processes(host._replace(job=host.job._replace(arguments=("--lr", "1"))))
        assert list(process.argv[1:]) == ["-m", "musterpoint", "launch", "t.py", "--lr", "1"]
        assert process.cwd == str(tmp_path / "hosts" / host.name / "wd")


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("slurm", {"mpi": {"enabled": True}}),
        ("kubernetes", {"type": "mpi"}),
        ("kubeflow", {"runtime": "mpi"}),
        ("kubeflow", {"numProcPerNode": 0}),
        ("kubeflow", {"nodes": 2}),
    ],
)
def test_a_distribution_that_it_has_not_is_refused(name: str, distribution: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"^--distribution"):
        played(name).read_distribution(distribution, 2)


@pytest.mark.parametrize("more", [{"hyperparameters": {"lr": 1}}, {"channels": {"train": "/data"}}])
def test_what_only_sagemaker_has_is_refused(more: dict[str, dict[str, object]], tmp_path: Path) -> None:
    made = LocalJob("a", ("node1",), "t.py", str(tmp_path), platform="slurm")._replace(**more)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"with --platform slurm"):
        played("slurm").check(made)
