"""Hosts as containers of one image, started as the platform starts them: ``docker run IMAGE train``.

A separate process (:mod:`~musterpoint.local.docker_cleanup`) removes everything of the run when it is over, or when
this process dies. Where this process runs in a container itself, and has the daemon's socket, hosts are containers
beside that one.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import threading
from typing import Any, Callable, Final, Mapping, Sequence

from musterpoint.base.console import Console
from musterpoint.base.errors import UsageError
from musterpoint.base.settings import OPTIONS, PYTHON
from musterpoint.core.fabric.devices import survey
from musterpoint.core.processes.process_tree import catches
from musterpoint.local import docker_cleanup, docker_container, docker_engine
from musterpoint.local.docker_container import DockerRun
from musterpoint.local.docker_engine import Engine, EngineError, OwnContainer
from musterpoint.local.host_environment import PATCHES
from musterpoint.local.job_request import LocalJob
from musterpoint.local.tree import BASE, CONTAINER_RANKS, Layout

HERE_ONLY = ("MUSTER_LOG_DIR", "MUSTER_HOSTS_FILE")
"""Variables of options that are paths of this machine."""
IMAGES_OWN = ("PYTHONPATH=", "OMP_NUM_THREADS=")
"""An image's variables that a host keeps begin with these."""


class DockerHosts:
    """Implements :class:`musterpoint.local.backend.Backend`. The constructor checks everything.

    Raises:
        UsageError: the SDK, the daemon, the image, or ``train`` in it is missing, or a name is taken.
    """

    name: Final = "docker"
    shares_python = False
    interface = "eth0"

    def __init__(self, job: LocalJob, layout: Layout) -> None:
        assert job.container is not None
        self.job = job
        self.container = job.container
        self.isolated = self.container.isolated
        self.layout = layout
        self.about = f"containers of {self.container.image}"
        self.addresses: dict[str, str] = {}
        self._on_end: Callable[[], None] = lambda: None
        self._started: dict[str, RunningContainer] = {}
        for option in HERE_ONLY:
            if option in job.options:
                flag = "--" + option.removeprefix("MUSTER_").lower().replace("_", "-")
                raise UsageError(f"{flag}: a path of this machine means nothing in a container; leave it out")
        self._engine = docker_engine.connect()
        self._cleaner: subprocess.Popen[bytes] | docker_cleanup.Reaper | None = None
        self._own: OwnContainer | None = None
        self._run = secrets.token_hex(8)
        # Docker allows two networks with the same name, but then neither can be used
        self._network = f"muster-{job.name}-{self._run}"
        try:
            self._own = self._engine.own_container()
            self._image = self._check_image()
            self._docker_run = self._start_cleaner()
            self._try_container()
        except EngineError as error:
            self.close()
            raise UsageError(f"--backend docker: {error}") from None
        except BaseException:
            self.close()
            raise

    def _check_image(self) -> dict[str, Any]:
        """The image's configuration; a UsageError where the image is missing or a name is taken."""
        image = self.container.image
        try:
            for name in docker_cleanup.sweep(self._engine):
                Console().say(f"removed {name}, which a run had left that died")
        except EngineError as error:
            Console().say(f"warning: what a run had left that died can't be removed: {error}")
        try:
            config = self._engine.image(image).get("Config") or {}
        except EngineError as error:
            if error.status != 404:
                raise UsageError(f"--image={image!r}: {error}") from None
            raise UsageError(
                f"--image={image!r}: there is no such image on this machine: docker pull {image}, or build it first "
                "(docker images lists what is here)"
            ) from None
        taken = [self._name(host) for host in self.job.hosts if self._engine.has_name(self._name(host))]
        if taken:
            raise UsageError(
                f"--job-name={self.job.name!r}: Docker has {', '.join(taken)} already: give another name, or end the "
                "job of that name"
            )
        return dict(config)

    def _start_cleaner(self) -> DockerRun:
        """Starts the process that cleans up when the run is over."""
        info = self._engine.info()
        security = tuple(info.get("SecurityOptions") or ())
        words = {"run": self._run, "image": self.container.image, "hosts": self.layout.hosts, "security": security}
        command = [sys.executable, "-m", docker_cleanup.__name__, json.dumps(words)]
        if self._own:
            self._cleaner = reaper = docker_cleanup.Reaper(self._engine, self._own, command)
            owner = reaper.owner
        else:
            null, pipe = subprocess.DEVNULL, subprocess.PIPE
            self._cleaner = process = subprocess.Popen(
                command, stdin=pipe, stdout=null, start_new_session=True, cwd="/", env=_environ()
            )
            owner = docker_cleanup.owner_of(process.pid)
        nvidia, places = "nvidia" in (info.get("Runtimes") or {}), self._own.places if self._own else None
        return DockerRun(self._network, self._run, owner, survey(os.environ).gpus, nvidia, security, places)

    def _try_container(self) -> None:
        """Checks with a trial container that the daemon sees this machine's files and the image has the entry point."""
        image = self.container.image
        mounts = [docker_container.mounted(each, self._docker_run) for each in docker_container.shared(self.job)]
        body = {
            "Image": image,
            "Cmd": list(docker_container.ENTRY),
            "Labels": self._docker_run.labels,
            "HostConfig": {"Mounts": mounts},
        }
        probe = self._create(body, None)
        try:
            own = self.container.entry or self._image.get("Entrypoint")
            if not own and not any(
                self._engine.has_path(probe, f"{folder}/{docker_container.ENTRY[0]}") for folder in self._path()
            ):
                raise UsageError(
                    f"--image={image!r}: there is no program `train` on its PATH, and no ENTRYPOINT: install "
                    "musterpoint in it, or put the one-file launcher there (muster bundle -o train)"
                )
            passwd = self._engine.read(probe, "/etc/passwd")
            self._user = docker_container.user_of(str(self._image.get("User") or ""), passwd, self._docker_run)
        finally:
            self._engine.remove(probe)

    def _path(self) -> list[str]:
        variables = dict(str(each).partition("=")[::2] for each in self._env())
        path = variables.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        return [folder for folder in path.split(":") if folder.startswith("/")]

    def _env(self) -> list[str]:
        env = self._image.get("Env")
        return [str(each) for each in env] if isinstance(env, list) else []

    def _name(self, host: str) -> str:
        return f"muster-{self.job.name}-{host}"

    def open(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        shutil.copytree(PATCHES, self.layout.patches, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            self._engine.create_network(self._network, self._docker_run.labels, self.container.isolated)
        except EngineError as error:
            advice = "; docker network ls shows which ones could go" if "address pool" in str(error) else ""
            raise UsageError(f"--backend docker: the network of the job couldn't be made: {error}{advice}") from None

    def inherited(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Only the caller's options, not its other variables; and the image's variables that we extend."""
        options = {option.variable for option in OPTIONS} - {*HERE_ONLY, PYTHON}  # that of this machine
        found = {name: value for name, value in environ.items() if name in options}
        found.update(each.partition("=")[::2] for each in self._env() if each.startswith(IMAGES_OWN))
        if self.job.region:
            found["AWS_REGION"] = self.job.region
        return found

    def meet(self) -> str:
        """The address at which this process is reached in the job's network: the machine's, or that of the container
        that we are in, which joins the network for it.
        """
        if self._own:
            return self._engine.join(self._own.identity, self._network)
        return self._engine.gateway(self._network)

    def environment(self, host: str) -> dict[str, str]:
        return {"MUSTER_LOG_DIR": CONTAINER_RANKS}

    def tree(self, host: str) -> str:
        return BASE

    def start(
        self, host: str, argv: Sequence[str], env: Mapping[str, str], stdin: int, output: int
    ) -> RunningContainer:
        docker_container.prepare(self.job, host, self.layout)
        _give(self.layout, host, self._user)
        body = docker_container.create_body(self.job, host, self.layout, env, self._docker_run)
        identity = self._create(body, self._name(host))
        running = RunningContainer(self._engine.new_connection(), identity, os.dup(output), self._on_end)
        try:
            running.start()
            self.addresses[host] = self._engine.address(identity, self._network)
        except EngineError as error:
            raise UsageError(self._explain(error)) from None
        finally:
            self._started[host] = running
        return running

    def _create(self, body: dict[str, Any], name: str | None) -> str:
        try:
            return self._engine.create(body, name)
        except EngineError as error:
            raise UsageError(self._explain(error)) from None

    def _explain(self, error: EngineError) -> str:
        text = str(error)
        if "source path does not exist" in text:
            return (
                f"--backend docker: the Docker daemon at {self._engine.place} doesn't see this machine's files "
                f"({text}): it has to run on this machine, or share these directories"
            )
        if "already in use" in text:
            return f"--job-name={self.job.name!r}: {text}"
        if "could not select device driver" in text:
            return (
                f"--gpus={self.container.gpus}: the Docker daemon can't give GPUs ({text}): install the NVIDIA "
                "Container Toolkit, or leave --gpus out"
            )
        return f"--backend docker: a container of {self.container.image} couldn't be started: {text}"

    def signal(self, host: str, signo: int) -> None:
        """Signals the container. A PID 1 without a handler ignores SIGTERM; if it has no child either, it is killed."""
        try:
            if signo == signal.SIGTERM and self._started[host].is_idle(self._engine):
                signo = signal.SIGKILL
            self._engine.kill(self._started[host].identity, signo)
        except EngineError as error:
            if not error.is_gone:
                Console().say(f"warning: {host} couldn't be signalled: {error}")

    def kill(self, host: str) -> None:
        self.signal(host, signal.SIGKILL)

    def out_of_memory(self, host: str) -> bool:
        return self._started[host].out_of_memory

    def close(self) -> None:
        cleaner, self._cleaner = self._cleaner, None
        if cleaner is not None:
            cleaner.communicate(b".")
            if cleaner.returncode:  # it was killed, or could do nothing
                self._clean()
        for running in self._started.values():
            running.join()
        self._engine.close()
        shutil.rmtree(self.layout.patches, ignore_errors=True)

    def _clean(self) -> None:
        try:
            docker_cleanup.clean(self._engine, self._run)
        except EngineError as error:
            label = f"{docker_container.RUN}={self._run}"
            Console().say(f"warning: what the job left in Docker (label {label}) can't be removed: {error}")


def _environ() -> dict[str, str]:
    """Our environment for a process in another directory, with absolute paths in PYTHONPATH."""
    path = os.environ.get("PYTHONPATH", "")
    folders = [os.path.abspath(folder) for folder in path.split(os.pathsep) if folder]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)} if folders else dict(os.environ)


def _give(layout: Layout, host: str, user: int | None) -> None:
    """Lets the container's user write to a host's directories, and nobody else of this machine.

    ``user``: of this machine; None: unknown. Only root can give files away; else the mounts alone lead to what anybody
    may write to.
    """
    os.chmod(layout.host(host), 0o700)
    if user in (0, os.geteuid()):
        return
    given = None if os.geteuid() else user
    for directory in (layout.tree(host), layout.ranks(host)):
        for _, _, files, folder in os.fwalk(directory):
            os.fchmod(folder, 0o777 if given is None else 0o700)
            for name in (".", *files):
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                if given is not None:
                    os.chown(name, given, -1, dir_fd=folder, follow_symlinks=False)
                elif stat.S_ISREG(mode):
                    os.chmod(name, stat.S_IMODE(mode) | 0o444, dir_fd=folder)


_LATE_OUTPUT = 10.0
"""Seconds to wait for the last output of a container that was removed."""


class RunningContainer:
    """A started container. A thread copies its output to the descriptor ``output`` and waits for its end."""

    def __init__(self, engine: Engine, identity: str, output: int, on_end: Callable[[], None]) -> None:
        self.identity = identity
        self.out_of_memory = False
        self._engine = engine
        self._output = output
        self._on_end = on_end
        self._code: int | None = None
        self._thread = threading.Thread(target=self._run, name="container", daemon=True)

    def start(self) -> None:
        """Attaches before it starts the container, so that no output is lost if that ends at once."""
        try:
            self._chunks = self._engine.attach(self.identity)
            self._engine.start(self.identity)
        except BaseException:
            os.close(self._output)
            raise
        self._thread.start()

    def poll(self) -> int | None:
        return self._code

    def wait(self) -> int:
        self._thread.join()
        assert self._code is not None
        return self._code

    def is_idle(self, engine: Engine) -> bool:
        """Whether the container's first process neither handles SIGTERM nor has a child; False: unknown."""
        pid = engine.state(self.identity).get("Pid", 0)
        try:
            with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
                if self.identity not in file.read():
                    return False  # the daemon is on another machine, and this is some process of ours
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                return not file.read().strip() and not catches(pid, signal.SIGTERM)
        except OSError:
            return False

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join(_LATE_OUTPUT)

    def _run(self) -> None:
        code = 137
        try:
            for chunk in self._chunks:
                self._write(chunk)
            code = self._engine.wait(self.identity)
            self.out_of_memory = code == 137 and bool(self._engine.state(self.identity).get("OOMKilled"))
        except EngineError as error:
            if not error.is_gone:
                self._write(f"musterpoint: lost the Docker daemon: {error}\n".encode())
        finally:
            os.close(self._output)
            self._engine.close()
            self._code = code
            self._on_end()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._output, view) :]
            except BrokenPipeError:
                return  # nobody reads any more; the container goes on
