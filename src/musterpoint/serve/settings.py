"""The options of a server, for everything that runs below it."""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Literal, Mapping, NamedTuple, get_args

from musterpoint.core.job.fields import is_loopback
from musterpoint.local.docker_engine import own_identity

ACCOUNT = "123456789012"
"""The account that moto answers for."""
REGION = "us-east-1"
PORT = 8311

Backend = Literal["process", "netns", "docker"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
Gpus = Literal["real", "as-type"]
GPUS: tuple[Gpus, ...] = get_args(Gpus)


def token_of(secret_key: str) -> str:
    """The token of the page. It is made of the server's secret, and says nothing of that."""
    return hmac.new(secret_key.encode(), b"the page of muster serve", hashlib.sha256).hexdigest()[:32]


class Settings(NamedTuple):
    """``data``: the directory with what jobs leave (absolute). ``host``, ``port``: where the server listens.

    ``backend``: how hosts of jobs are made; ``images``: URIs of training images → images of this machine.
    ``max_jobs``: how many jobs run at once. ``gpus``: whether a job sees this machine's GPUs, or as many as its
    instance type has. ``access_key``, ``secret_key``: what calls are signed with. ``end_with_stdin``: whether the
    server ends with its stdin.
    """

    data: str
    host: str = "127.0.0.1"
    port: int = PORT
    backend: Backend = "process"
    images: Mapping[str, str] = {}
    region: str = REGION
    max_jobs: int = 1
    gpus: Gpus = "real"
    access_key: str = ""
    secret_key: str = ""
    end_with_stdin: bool = False

    @property
    def url(self) -> str:
        """The server's address for jobs and clients of this machine."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0", "::") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def token(self) -> str:
        """Opens the page."""
        return token_of(self.secret_key)

    @property
    def page(self) -> str:
        """The address of the page for browsers, with its token."""
        return f"{self.url}/?token={self.token}"

    def arn(self, name: str) -> str:
        """The ARN of a training job; SageMaker writes the name in lower case."""
        return f"arn:aws:sagemaker:{self.region}:{ACCOUNT}:training-job/{name.lower()}"

    def job_directory(self, name: str) -> str:
        """The directory of everything that a training job leaves."""
        return os.path.join(self.data, "jobs", name)

    def job_log(self, name: str) -> str:
        """The file of everything that a job's process and its hosts have written."""
        return os.path.join(self.job_directory(name), "log")

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a client of the API."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }

    @property
    def sdk_file(self) -> str:
        """The defaults of SageMaker's SDKs; see :mod:`.running`."""
        return os.path.join(self.data, "sagemaker.yaml")

    @property
    def exported(self) -> dict[str, str]:
        """The variables that people export: a client's, and the place of the SDKs' defaults. Those who reach this
        container from outside have no such file, which the SDKs don't forgive."""
        if own_identity() and not is_loopback(self.host):
            return self.variables
        return {**self.variables, "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": self.sdk_file}
