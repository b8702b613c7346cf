"""What a local job is asked to be: the caller's words checked once, before anything is made."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from typing import Any, Mapping, NamedTuple

from musterpoint.errors import UsageError
from musterpoint.local.container import Container
from musterpoint.masking import Masker

NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
CHANNEL = re.compile(r"[A-Za-z0-9._-]{1,64}")
VARIABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class LocalJob(NamedTuple):
    """One job for hosts of this machine.

    ``program`` is relative to ``source_dir`` (absolute). ``arguments`` reach the program untouched, after the
    hyperparameters. ``hyperparameters`` are decoded values; ``distribution`` are the hyperparameters, already encoded,
    that a distribution becomes. ``options`` are ``MUSTER_*`` variables, ``host_slots`` slots per host (empty: not
    given). ``environment`` is the user's. ``channels`` maps names to absolute paths. ``container`` is None where hosts
    aren't containers.
    """

    name: str
    hosts: tuple[str, ...]
    program: str
    source_dir: str
    arguments: tuple[str, ...] = ()
    hyperparameters: dict[str, Any] = {}
    distribution: dict[str, str] = {}
    channels: dict[str, str] = {}
    options: dict[str, str] = {}
    host_slots: tuple[int, ...] = ()
    environment: dict[str, str] = {}
    region: str = ""
    interface: str = "eth0"
    cpu_fallback: bool = False
    stop_after: float | None = None
    grace: float = 120.0
    container: Container | None = None

    @property
    def intermediate(self) -> str:
        """The directory that is every host's ``output/intermediate``, as SDK v2's local mode mounts it where
        ``sagemaker_s3_output`` is ``file://DIR``: ``DIR/output/intermediate``. Empty: each host has its own.
        """
        place = self.hyperparameters.get("sagemaker_s3_output")
        if not isinstance(place, str) or not place.startswith("file://"):
            return ""
        return os.path.join(os.path.abspath(place.removeprefix("file://")), "output", "intermediate")


def masker_of(job: LocalJob, inherited: Mapping[str, str]) -> Masker:
    """Hides the secrets of ``job`` and of the caller's environment."""
    environ = {**inherited, **job.options, **job.environment}
    return Masker(environ, {**job.distribution, **job.hyperparameters}, job.arguments)


NAMINGS = ("algo", "sdk")


def host_names(count: int, naming: str = "algo") -> tuple[str, ...]:
    """``algo-1`` … as SageMaker names them, or ``algo-1-x7k2p`` … as the local mode of SDK v2 does (``sdk``)."""
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    suffix = "-" + "".join(secrets.choice(alphabet) for _ in range(5)) if naming == "sdk" else ""
    return tuple(f"algo-{number}{suffix}" for number in range(1, count + 1))


def name_for(program: str, now: float) -> str:
    """A job name from the program and the time, within the platform's alphabet and 63 characters."""
    stem = re.sub(r"[^a-zA-Z0-9]+", "-", os.path.splitext(os.path.basename(program))[0]).strip("-") or "job"
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S", time.localtime(now)) + f"-{int(now * 1000) % 1000:03}"
    return f"{stem[: 62 - len(stamp)].rstrip('-')}-{stamp}"


def find_program(program: str, source_dir: str, cwd: str) -> tuple[str, str]:
    """The source directory (absolute) and the program relative to it.

    ``program`` may be relative to ``source_dir`` or to ``cwd``; without ``source_dir`` the directory it is in is the
    source. A directory with a ``__main__.py`` is a program, too.

    Raises:
        UsageError: there is no such file, or it lies outside the source directory.
    """
    if not source_dir:
        path = os.path.abspath(os.path.join(cwd, program))
        if os.path.isdir(path) and not _can_run(path):
            raise UsageError(f"PROGRAM={program!r}: {path} is a directory without a __main__.py; give a file in it")
        if not _can_run(path):
            raise UsageError(f"PROGRAM={program!r}: there is no file {path}; give the path of a script")
        return os.path.dirname(path), os.path.basename(path)
    source = os.path.abspath(os.path.join(cwd, source_dir))
    if not os.path.isdir(source):
        raise UsageError(f"--source-dir={source_dir!r}: there is no directory {source}")
    for base in (source, cwd):
        path = os.path.abspath(os.path.join(base, program))
        inside = os.path.relpath(path, source)
        if _can_run(path) and not inside.startswith(os.pardir):
            return source, inside
    raise UsageError(
        f"PROGRAM={program!r}: there is no such file in --source-dir {source}; give its path relative to that directory"
    )


def _can_run(path: str) -> bool:
    """A file, or a package's directory."""
    return os.path.isfile(path) or os.path.isfile(os.path.join(path, "__main__.py"))


def find_file(path: str, option: str, cwd: str) -> str:
    """``path`` (absolute) of a file that is there; a UsageError names ``option``."""
    found = os.path.abspath(os.path.join(cwd, path))
    if not os.path.isfile(found):
        raise UsageError(f"{option}={path!r}: there is no file {found}")
    return found


def read_json(text: str, option: str, cwd: str) -> dict[str, Any]:
    """The JSON object in ``text``, or in the file it names. A UsageError names ``option``."""
    where = option
    if not text.lstrip().startswith(("{", "[", '"')):
        path = os.path.join(cwd, text)
        where = f"{option} (file {path})"
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it isn't UTF-8 text"
            raise UsageError(
                f"{option}={text!r}: expected a JSON object or a file holding one, and {path} can't be read: {why}"
            ) from None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where}: expected a JSON object, got text that isn't JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


def read_pairs(texts: list[str], option: str, what: str, names: re.Pattern[str]) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping. A UsageError shows the form that was expected."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not names.fullmatch(name):
            raise UsageError(f"{option}={text!r}: expected {what}")
        if name in pairs:
            raise UsageError(f"{option}={text!r}: {name} was given twice")
        pairs[name] = value
    return pairs


def read_channels(texts: list[str], cwd: str) -> dict[str, str]:
    """``NAME=PATH`` texts as names and absolute paths that exist."""
    channels = read_pairs(texts, "--channel", "NAME=PATH with a name of A-Z a-z 0-9 . _ -", CHANNEL)
    for name, path in channels.items():
        channels[name] = os.path.abspath(os.path.join(cwd, path))
        if not os.path.exists(channels[name]):
            raise UsageError(f"--channel={name}={path}: there is no file or directory {channels[name]}")
    return channels


def read_host_slots(text: str, hosts: int) -> tuple[int, ...]:
    """``2,4`` as slots of the first host, the second, …; one number per host."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"--host-slots={text!r}: expected whole numbers from 1, separated by commas, such as 2,4")
    if len(parts) != hosts:
        raise UsageError(f"--host-slots={text!r}: expected one number for each of the {hosts} hosts, got {len(parts)}")
    return tuple(int(part) for part in parts)


def check(job: LocalJob) -> LocalJob:
    """The job itself, if the platform would take its name; else a UsageError."""
    if not NAME.fullmatch(job.name):
        raise UsageError(f"--job-name={job.name!r}: expected up to 63 of A-Z a-z 0-9 -, not - at either end")
    return job
