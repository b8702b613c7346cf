"""What people are told when containers can't be had, and what of the caller's environment reaches one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.local import docker_cleanup, docker_container, docker_engine, docker_hosts
from musterpoint.local.docker_container import DockerRun
from musterpoint.local.docker_engine import EngineError
from musterpoint.local.docker_hosts import DockerHosts
from musterpoint.local.job_request import Container, LocalJob
from musterpoint.local.tree import Layout

JOB = LocalJob("digits", ("algo-1", "algo-2"), "train.py", os.path.dirname(__file__), container=Container("an-image"))


class Answer(Exception):
    """What the SDK raises for an answer of the daemon that isn't good."""

    def __init__(self, status: int, explanation: str) -> None:
        super().__init__(explanation)
        self.explanation = explanation
        self.response = self
        self.status_code = status


def refused(status: int, words: str) -> EngineError:
    return EngineError(Answer(status, words))


class FakeEngine:
    """A daemon with one image, which is ``image``; ``problems`` are what it answers to a method's name."""

    place, passwd = "unix:///docker.sock", "root:x:0:0::/root:/bin/sh\nalice:x:1000:50::/home/alice:/bin/sh\n"

    def __init__(self, config: dict[str, Any], programs: tuple[str, ...] = (), **problems: EngineError) -> None:
        self.config, self.programs, self.problems = config, programs, problems
        self.called: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        def method(*words: Any) -> Any:
            self.called.append((name, words))
            if name in self.problems:
                raise self.problems[name]
            answers: dict[str, Any] = {
                "image": {"Config": self.config}, "info": {"SecurityOptions": [], "Runtimes": {}}, "create": "id",
                "containers": [], "networks": [], "has_name": False, "new_connection": self, "read": self.passwd,
            }  # fmt: skip
            return words[1] in self.programs if name == "has_path" else answers.get(name)

        return method


@pytest.fixture
def cleaners(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """No cleaner is started; what would have been said to them."""
    said: list[Any] = []

    class Cleaner:
        pid, returncode = os.getpid(), 0

        def __init__(self, command: list[str], **options: Any) -> None:
            said.append(command[2])

        def communicate(self, data: bytes) -> None:
            said.append(data)

    monkeypatch.setattr(docker_hosts.subprocess, "Popen", Cleaner)
    return said


def made(monkeypatch: pytest.MonkeyPatch, engine: FakeEngine, job: LocalJob = JOB) -> DockerHosts:
    monkeypatch.setattr(docker_engine, "connect", lambda: engine)
    return DockerHosts(job, Layout("/out"))


PATH = {"Env": ["PATH=/opt/venv/bin:/bin", "PYTHONPATH=/image", "X=y"]}


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (FakeEngine({}, image=refused(404, "No such image")),
         "--image='an-image': there is no such image .*docker pull"),
        (FakeEngine({}, image=refused(500, "out of inodes")), "--image='an-image': out of inodes"),
        (FakeEngine(PATH), "no program `train` on its PATH, and no ENTRYPOINT"),
        (FakeEngine(PATH, create=refused(400, "bind source path does not exist: /code")), "doesn't see this machine's"),
        (FakeEngine(PATH, create=refused(409, 'The name "/x" is already in use')), "--job-name='digits': The name"),
        (FakeEngine(PATH, create=refused(500, "no space left")), "couldn't be started: no space left"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, cleaners: list[Any], engine: FakeEngine, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        made(monkeypatch, engine)
    assert cleaners in ([], [docker_cleanup.__name__, b"."])


def test_a_name_that_is_taken(monkeypatch: pytest.MonkeyPatch, cleaners: list[Any]) -> None:
    engine = FakeEngine(PATH)
    engine.has_name = lambda name: name.endswith("2")  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="--job-name='digits': Docker has muster-digits-algo-2 already"):
        made(monkeypatch, engine)
    assert cleaners == []


@pytest.mark.parametrize(
    ("image", "programs"),
    [(PATH, ("/bin/train",)), ({}, ("/usr/local/bin/train",)), ({**PATH, "Entrypoint": ["/entry"]}, ())],
)
def test_an_entry_point_is_enough(
    monkeypatch: pytest.MonkeyPatch, cleaners: list[Any], image: dict[str, Any], programs: tuple[str, ...]
) -> None:
    engine = FakeEngine(image, programs)
    made(monkeypatch, engine).close()
    assert ("remove", ("id",)) in engine.called


def test_the_callers_environment_stays_here(monkeypatch: pytest.MonkeyPatch, cleaners: list[Any]) -> None:
    docker = made(monkeypatch, FakeEngine({**PATH, "Entrypoint": ["/entry"]}), JOB._replace(region="eu-west-1"))
    outer = {"MUSTER_SLOTS": "2", "MUSTER_LOG_DIR": "/logs", "HOME": "/home/me", "PYTHONPATH": "/mine"}
    assert docker.inherited(outer) == {"MUSTER_SLOTS": "2", "PYTHONPATH": "/image", "AWS_REGION": "eu-west-1"}
    docker.close()
    assert cleaners == [docker_cleanup.__name__, b"."]


def test_a_cleaner_that_was_killed_is_stood_in_for(monkeypatch: pytest.MonkeyPatch, cleaners: list[Any]) -> None:
    engine = FakeEngine({**PATH, "Entrypoint": ["/entry"]})
    docker = made(monkeypatch, engine)
    monkeypatch.setattr(docker._cleaner, "returncode", -9)
    before = len(engine.called)
    docker.close()
    assert [name for name, _ in engine.called[before:]] == ["containers", "networks", "close"]


def test_a_path_of_this_machine_as_an_option(monkeypatch: pytest.MonkeyPatch, cleaners: list[Any]) -> None:
    with pytest.raises(UsageError, match="--hosts-file: a path of this machine means nothing in a container"):
        made(monkeypatch, FakeEngine(PATH), JOB._replace(options={"MUSTER_HOSTS_FILE": "/etc/hosts"}))


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (PermissionError(13, "Permission denied"), "no permission to talk to the Docker daemon at tcp://somewhere:1"),
        (FileNotFoundError(2, "No such file"), "there is no Docker daemon at tcp://somewhere:1"),
        (ConnectionRefusedError(111, "refused"), "there is no Docker daemon at tcp://somewhere:1"),
        (TimeoutError("timed out"), "the Docker daemon at tcp://somewhere:1 doesn't answer: timed out"),
    ],
)
def test_a_daemon_out_of_reach(monkeypatch: pytest.MonkeyPatch, problem: OSError, words: str) -> None:
    def raise_it(version: str) -> None:
        try:
            raise problem
        except OSError as error:
            raise OSError(str(error)) from error

    monkeypatch.setenv("DOCKER_HOST", "tcp://somewhere:1")
    monkeypatch.setattr(docker_engine, "_errors", lambda: (OSError,))
    monkeypatch.setattr(docker_engine, "load", lambda: None)
    monkeypatch.setattr(docker_engine, "_client", raise_it)
    with pytest.raises(UsageError, match="--backend docker: " + words):
        docker_engine.connect()


def test_the_sdk_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(UsageError, match=r"needs the Docker SDK for Python.*pip install docker"):
        docker_engine.connect()


@pytest.mark.parametrize(
    ("user", "security", "expected"),
    [
        ("", "", 0), ("root", "", 0), ("alice", "", 1000), ("alice:users", "", 1000), ("7:7", "", 7),
        ("", "name=rootless", os.geteuid()), ("alice", "name=rootless", None), ("", "name=userns", None),
        ("nobody-knows", "", None),
    ],
)  # fmt: skip
def test_who_the_images_user_is_here(user: str, security: str, expected: int | None) -> None:
    assert docker_container.user_of(user, FakeEngine.passwd, DockerRun("", security=(security,))) == expected


@pytest.mark.parametrize("user", [1234567, None, 0], ids=["another", "unknown", "root"])
def test_only_the_images_user_may_write(tmp_path: Path, user: int | None) -> None:
    layout = Layout(str(tmp_path))
    for folder in (layout.ranks("algo-1"), f"{layout.tree('algo-1')}/model"):
        os.makedirs(folder)
    tree, outside = Path(layout.tree("algo-1")), tmp_path / "outside"
    for file in (outside, tree / "config.json"):
        file.touch(mode=0o600)
    (tree / "link").symlink_to(outside)
    (tree / "folder").symlink_to("/")
    before = outside.stat(), Path("/").stat(), (tree / "model").stat()
    docker_hosts._give(layout, "algo-1", user)
    assert Path(layout.host("algo-1")).stat().st_mode & 0o777 == 0o700, "nobody else reaches what is below"
    assert (outside.stat(), Path("/").stat()) == before[:2]
    given = [tree, tree / "model", Path(layout.ranks("algo-1"))]
    modes = {each.stat().st_mode & 0o777 for each in given}
    if user == 0:
        assert (tree / "model").stat() == before[2]
    elif user and os.geteuid() == 0:
        assert modes == {0o700} and {each.stat().st_uid for each in (*given, tree / "config.json")} == {user}
    else:
        assert modes == {0o777} and (tree / "config.json").stat().st_mode & 0o777 == 0o644
