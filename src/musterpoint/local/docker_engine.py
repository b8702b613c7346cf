"""Calls the Docker daemon through the Docker SDK for Python: what local jobs need, with errors for people."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import tarfile
from importlib import import_module
from typing import Any, Iterator, NamedTuple

from musterpoint.base.errors import UsageError

TIMEOUT = 120
"""Seconds to wait for an answer of the daemon; on a busy machine a container may start slowly."""


class OwnContainer(NamedTuple):
    """The container that this process runs in.

    identity: its id.
    image: its image's id.
    env: its variables, ``NAME=VALUE``.
    places: where its directories lie on the daemon's machine, by their paths in it.
    """

    identity: str
    image: str
    env: tuple[str, ...]
    places: dict[str, str]


def own_identity() -> str:
    """The id of the container that this process runs in, by the files that Docker mounts there; empty: in none."""
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        found = re.search(r"/containers/([0-9a-f]{64})/(?:hostname|hosts|resolv\.conf) ", file.read())
        return found[1] if found else ""
    return ""


class Stdin:
    """A container's stdin, which ends with this connection.

    held: the object of the SDK; its connection ends with it.
    """

    def __init__(self, held: Any) -> None:
        self._held = held

    def end(self, last: bytes = b"") -> None:
        """Sends ``last``, and ends it. Raises OSError: the container has ended."""
        connection: socket.socket = getattr(self._held, "_sock", self._held)
        with contextlib.closing(self._held), connection:
            connection.sendall(last)
            connection.shutdown(socket.SHUT_WR)


class Engine:
    """One connection to the daemon; each thread needs its own (:meth:`new_connection`).

    Raises from every method:
        EngineError: the daemon refused, or didn't answer.
    """

    def __init__(self, api: Any) -> None:
        self._api = api

    @property
    def place(self) -> str:
        """Where the daemon is, for people."""
        return str(self._api.base_url).replace("http+docker://localhost", _socket())

    def new_connection(self) -> Engine:
        return Engine(_client(self._api.api_version))

    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = self._call("info")
        return found

    def image(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._call("inspect_image", name)
        return found

    def create(self, body: dict[str, Any], name: str | None = None) -> str:
        """Makes a container that doesn't run yet; its id."""
        return str(self._call("create_container_from_config", body, name)["Id"])

    def attach(self, container: str) -> Iterator[bytes]:
        """The container's output, stdout and stderr as they come, until it has ended."""
        return _read(self._call("attach", container, stream=True))

    def start(self, container: str) -> None:
        self._call("start", container)

    def wait(self, container: str) -> int:
        """The container's exit code, once it has ended."""
        return int(self._call("wait", container, timeout=None)["StatusCode"])

    def state(self, container: str) -> dict[str, Any]:
        found: dict[str, Any] = self._call("inspect_container", container)["State"]
        return found

    def address(self, container: str, network: str) -> str:
        networks = self._call("inspect_container", container)["NetworkSettings"]["Networks"]
        return str(networks[network]["IPAddress"])

    def has_path(self, container: str, path: str) -> bool:
        """Whether there is something at ``path`` in the container's file system."""
        stream = self._archive(container, path)
        if stream is not None:
            stream.close()
        return stream is not None

    def read(self, container: str, path: str) -> str:
        """The text of a file in the container's file system; empty: there is none."""
        stream = self._archive(container, path)
        if stream is None:
            return ""
        with tarfile.open(fileobj=io.BytesIO(b"".join(_read(stream)))) as tar:
            file = tar.extractfile(tar.getmembers()[0])
            return file.read().decode("utf-8", "replace") if file else ""

    def _archive(self, container: str, path: str) -> Any:
        try:
            return self._call("get_archive", container, path)[0]
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    def own_container(self) -> OwnContainer | None:
        """The container of this daemon that this process runs in; None: it runs in none."""
        identity = own_identity()
        found = self._inspected(identity) if identity else None
        if found is None:
            return None
        places = {each["Destination"]: each["Source"] for each in found["Mounts"] if each.get("Source")}
        return OwnContainer(identity, found["Image"], tuple(found["Config"].get("Env") or ()), places)

    def stdin(self, container: str) -> Stdin:
        """The stdin of a container that hasn't started yet."""
        return Stdin(self._call("attach_socket", container, {"stdin": 1, "stream": 1}))

    def join(self, container: str, network: str) -> str:
        """Gives a container an address in another network, too; the address."""
        self._call("connect_container_to_network", container, network)
        return self.address(container, network)

    def kill(self, container: str, signo: int) -> None:
        self._call("kill", container, signo)

    def remove(self, container: str) -> None:
        """Kills the container if it runs, and removes it with what it wrote outside its mounts."""
        self._call("remove_container", container, v=True, force=True)

    def containers(self, *labels: str) -> list[dict[str, Any]]:
        """Every container, running or not, that has all these labels (``NAME`` or ``NAME=VALUE``)."""
        found: list[dict[str, Any]] = self._call("containers", all=True, filters={"label": list(labels)})
        return found

    def has_name(self, name: str) -> bool:
        """Whether a container has this name, or id."""
        return self._inspected(name) is not None

    def _inspected(self, name: str) -> dict[str, Any] | None:
        """None: there is no such container."""
        try:
            found: dict[str, Any] = self._call("inspect_container", name)
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return found

    def create_network(self, name: str, labels: dict[str, str], internal: bool) -> str:
        made = self._call("create_network", name, driver="bridge", labels=labels, internal=internal)
        return str(made["Id"])

    def gateway(self, network: str) -> str:
        """The address of the machine itself in ``network``."""
        found: dict[str, Any] = self._call("inspect_network", network)
        return str(found["IPAM"]["Config"][0]["Gateway"])

    def networks(self, *labels: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("networks", filters={"label": list(labels)})
        return found

    def remove_network(self, network: str) -> None:
        """Also where containers of others have joined it."""
        for container in self._call("inspect_network", network).get("Containers") or ():
            self._call("disconnect_container_from_network", container, network, force=True)
        self._call("remove_network", network)

    def close(self) -> None:
        self._api.close()

    def _call(self, name: str, *words: Any, **more: Any) -> Any:
        try:
            return getattr(self._api, name)(*words, **more)
        except _errors() as error:
            raise EngineError(error) from None


def _read(chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except _errors() as error:
        raise EngineError(error) from None


class EngineError(Exception):
    """The daemon's own message. ``status`` is the HTTP status of its answer; 0: no answer."""

    def __init__(self, error: BaseException) -> None:
        words = getattr(error, "explanation", None) or str(error)
        super().__init__(" ".join(str(words).split()))
        response = getattr(error, "response", None)
        self.status: int = getattr(response, "status_code", 0) or 0

    @property
    def is_gone(self) -> bool:
        """Whether the container doesn't exist, doesn't run, or is already being removed."""
        return self.status in (404, 409)


def load() -> Any:
    """The SDK. A UsageError says what to install."""
    try:
        return import_module("docker")
    except ImportError as error:
        raise UsageError(
            f"--backend docker needs the Docker SDK for Python, and it can't be imported here ({error}): "
            "pip install docker"
        ) from None


def connect() -> Engine:
    """The daemon that the ``docker`` command would use.

    Raises:
        UsageError: the SDK is missing, no daemon answers, or this user may not talk to it; the message says what to do.
    """
    load()
    try:
        return Engine(_client("auto"))
    except _errors() as error:
        raise UsageError("--backend docker: " + _why_not(error)) from None


def _client(version: str) -> Any:
    docker = load()
    settings = docker.utils.kwargs_from_env()
    settings.setdefault("base_url", _socket())
    return docker.APIClient(version=version, timeout=TIMEOUT, **settings)


def _socket() -> str:
    """The daemon's address: ``DOCKER_HOST``, else the current ``docker context``, else the usual socket."""
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    try:
        context = import_module("docker.context").ContextAPI.get_current_context()
        return str(context.Host) if context and context.Host else "unix:///var/run/docker.sock"
    except Exception:  # a broken configuration file of the docker command is that command's business
        return "unix:///var/run/docker.sock"


def _errors() -> tuple[type[Exception], ...]:
    return load().errors.DockerException, import_module("requests").exceptions.RequestException, OSError


def _why_not(error: BaseException) -> str:
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    where = _socket()
    if any(isinstance(link, PermissionError) for link in chain):
        return (
            f"no permission to talk to the Docker daemon at {where}: add this user to the group docker "
            "(sudo usermod -aG docker $USER, then log in again), or run this as root"
        )
    if any(isinstance(link, (FileNotFoundError, ConnectionRefusedError)) for link in chain):
        return (
            f"there is no Docker daemon at {where}: install Docker or start it (sudo systemctl start docker), or set "
            "DOCKER_HOST where it is elsewhere"
        )
    return f"the Docker daemon at {where} doesn't answer: {EngineError(error)}"
