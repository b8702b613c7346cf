"""SageMaker's training container as the runner of local jobs starts it: its files, its variables, its command."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Sequence

from musterpoint.local import tree
from musterpoint.local.job import LocalJob
from musterpoint.local.platforms.platform import HostProcess, LocalPlatform, PlayedHost
from musterpoint.local.platforms.sagemaker import ENTRY
from musterpoint.local.results import ALGORITHM_ERROR
from musterpoint.local.tree import BASE, Layout
from musterpoint.serve import training_request as requested
from musterpoint.serve.settings import Settings


def played(
    settings: Settings,
    request: Mapping[str, Any],
    arn: str,
    run: int,
    bring: Callable[[str, str], None],
    endpoint: Callable[[], str],
) -> LocalPlatform:
    """The platform of one job. ``bring`` puts the channels and checkpoints of a host into its tree; ``endpoint`` is
    where hosts reach the server, asked once they are there.
    """

    def prepare(job: LocalJob, host: str, layout: Layout) -> None:
        where = layout.tree(host)
        for directory in tree.DIRECTORIES:
            os.makedirs(os.path.join(where, directory), exist_ok=True)
        os.makedirs(layout.ranks(host), exist_ok=True)
        for name, content in requested.config_files(request, host, arn, run).items():
            path = os.path.join(where, "input", "config", name)
            tree.write_text(path, requested.to_file(content), private=job.container is None)
        bring(host, where)

    def environment(host: PlayedHost) -> dict[str, str]:
        found = {
            "MUSTER_PLATFORM": "sagemaker",
            "TRAINING_JOB_NAME": job_name,
            "TRAINING_JOB_ARN": arn,
            "SAGEMAKER_METRICS_DIRECTORY": f"{host.tree}/output/metrics/sagemaker",
            **settings.variables,
            "AWS_ENDPOINT_URL": endpoint(),
        }
        if settings.gpus == "as-type":
            found["SM_NUM_GPUS"] = str(requested.gpus_of_type(request, host.name))
        return found

    def processes(host: PlayedHost) -> Sequence[HostProcess]:
        return (HostProcess(requested.entry(request) or ENTRY),)

    job_name = str(request["TrainingJobName"])
    return platform_of(requested.hosts(request), prepare, environment, processes)


def platform_of(
    hosts: tuple[str, ...],
    prepare: Callable[[LocalJob, str, Layout], None],
    environment: Callable[[PlayedHost], dict[str, str]],
    processes: Callable[[PlayedHost], Sequence[HostProcess]],
) -> LocalPlatform:
    """The platform of a job of any kind, checked already. Hosts that share this machine's directories are told where
    their ``/opt/ml`` is.
    """

    def with_tree(host: PlayedHost) -> dict[str, str]:
        found = environment(host)
        return found if host.tree == BASE else {**found, "SAGEMAKER_BASE_DIR": host.tree}

    return LocalPlatform(
        host_names=lambda count, naming: hosts,
        read_distribution=lambda distribution, count: {},
        check=lambda job: None,
        prepare=prepare,
        environment=with_tree,
        processes=processes,
        failure_head=ALGORITHM_ERROR,
        grace=requested.GRACE,
    )
