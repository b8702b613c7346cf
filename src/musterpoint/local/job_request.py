"""A local job as the caller asks for it; the values are checked once, before anything is made."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from typing import Any, Literal, Mapping, NamedTuple, get_args

from musterpoint.base.errors import UsageError, similar
from musterpoint.base.masking import Masker
from musterpoint.base.metrics import Metric
from musterpoint.base.readers import MOST_COUNTED
from musterpoint.base.untrusted import checked, read_regular
from musterpoint.core.data.places import is_path, read_channel
from musterpoint.core.job.platforms import PLATFORMS
from musterpoint.core.launch.launchers import instead_of

NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
CHANNEL = re.compile(r"[A-Za-z0-9._-]{1,64}")
VARIABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
SHM_SIZE = 2 << 30
"""torch's data loaders pass batches through /dev/shm; Docker's default of 64 MiB holds only a few."""
SMALLEST_MEMORY = 6 << 20

_LARGEST_JSON = 64 << 20
"""Bytes of such a file."""


class Container(NamedTuple):
    """The containers that serve as hosts.

    ``image``: the image they are made of, which is on this machine.
    ``shm_size``: bytes of ``/dev/shm`` on each host.
    ``memory``: bytes that each host may use (0: no limit).
    ``cpus``: processors that each host may use (0.0: all of them).
    ``gpus``: ``auto``, ``all``, ``none`` or how many each host gets.
    ``isolated``: the platform's network isolation.
    ``requirements``: a file (absolute) that stands as ``requirements.txt`` beside the code, or empty.
    ``entry``: a command in the place of the image's own entry point; empty: none.
    """

    image: str
    shm_size: int = SHM_SIZE
    memory: int = 0
    cpus: float = 0.0
    gpus: str = "auto"
    isolated: bool = False
    requirements: str = ""
    entry: tuple[str, ...] = ()


class LocalJob(NamedTuple):
    """One job for hosts of this machine.

    ``name``: the job's name.
    ``hosts``: the names of its hosts, in the order of their ranks.
    ``program``: the entry point, relative to ``source_dir``.
    ``source_dir``: the directory of the user's code (absolute).
    ``arguments``: words that the program gets unchanged, after the hyperparameters.
    ``hyperparameters``: decoded values by name.
    ``distribution``: what ``--distribution`` stands for on the platform: SageMaker's hyperparameters (encoded), or the
    checked settings of another platform.
    ``channels``: names of input channels → absolute paths.
    ``sharded``: those of them whose files are shared out among the hosts.
    ``options``: options that were given, as ``MUSTER_*`` variables.
    ``host_slots``: slots of each host (empty: not given).
    ``environment``: the user's own variables.
    ``region``: the AWS region, or empty.
    ``interface``: the network interface in the hosts' configuration.
    ``cpu_fallback``: whether CUDA is replaced by the CPU.
    ``debug``: the rank that gets this terminal; None: none does.
    ``stop_after``: seconds after which the job is stopped; None: never.
    ``grace``: seconds that a host gets between SIGTERM and SIGKILL.
    ``container``: the containers that serve as hosts; None: hosts aren't containers.
    ``platform``: the platform whose control plane is played.
    ``module``: whether ``program`` is the name of a module.
    ``metrics``: what to look for in the hosts' output.
    ``groups``: instance groups, each with how many hosts it has.
    ``role_of``: the role of each host, in a job of several.
    """

    name: str
    hosts: tuple[str, ...]
    program: str
    source_dir: str
    arguments: tuple[str, ...] = ()
    hyperparameters: dict[str, Any] = {}
    distribution: dict[str, Any] = {}
    channels: dict[str, str] = {}
    sharded: tuple[str, ...] = ()
    options: dict[str, str] = {}
    host_slots: tuple[int, ...] = ()
    environment: dict[str, str] = {}
    region: str = ""
    interface: str = "eth0"
    cpu_fallback: bool = False
    debug: int | None = None
    stop_after: float | None = None
    grace: float = 120.0
    container: Container | None = None
    platform: str = next(iter(PLATFORMS))
    module: bool = False
    metrics: tuple[Metric, ...] = ()
    groups: tuple[tuple[str, int], ...] = ()
    role_of: dict[str, str] = {}

    @property
    def hosts_of_groups(self) -> dict[str, tuple[str, ...]]:
        """The hosts of each instance group, one group after the other."""
        left, found = self.hosts, {}
        for name, count in self.groups:
            found[name], left = left[:count], left[count:]
        return found

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
    """A masker of the secrets in ``job`` and in the caller's environment."""
    environ = {**inherited, **job.options, **job.environment}
    return Masker(environ, {**job.distribution, **job.hyperparameters}, job.arguments)


HostNaming = Literal["algo", "sdk"]
NAMINGS: tuple[HostNaming, ...] = get_args(HostNaming)


def host_names(count: int, naming: HostNaming = "algo") -> tuple[str, ...]:
    """``algo-1`` … as SageMaker names them, or ``algo-1-x7k2p`` … as the local mode of SDK v2 does (``sdk``)."""
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    suffix = "-" + "".join(secrets.choice(alphabet) for _ in range(5)) if naming == "sdk" else ""
    return tuple(f"algo-{number}{suffix}" for number in range(1, count + 1))


def name_for(program: str, now: float) -> str:
    """A job name from the program and the time, within the platform's alphabet and 63 characters."""
    stem = re.sub(r"[^a-zA-Z0-9]+", "-", os.path.splitext(os.path.basename(program))[0]).strip("-") or "job"
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S", time.localtime(now)) + f"-{int(now * 1000) % 1000:03}"
    return f"{stem[: 62 - len(stamp)].rstrip('-')}-{stamp}"


def _near(path: str) -> str:
    """A file beside ``path`` with nearly its name, for people."""
    folder, name = os.path.split(path)
    near = similar(name, os.listdir(folder)) if os.path.isdir(folder) else ""
    return f" (did you mean {near}?)" if near else ""


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
            instead = instead_of(os.path.basename(program), "local")
            instead = instead and f"; {instead}"
            if re.fullmatch(r"python[\d.]*", program):
                instead = f", without {program} before it"
            first, *arguments = program.split() or [""]
            if arguments and _can_run(os.path.join(cwd, first)):
                instead = f" ({first} is there), with its arguments behind it, not in the same quotes: {program}"
            raise UsageError(
                f"PROGRAM={program!r}: there is no file {path}{_near(path)}; give the path of a script{instead}"
            )
        return os.path.dirname(path), os.path.basename(path)
    source = find_directory(source_dir, cwd)
    for base in (source, cwd):
        path = os.path.abspath(os.path.join(base, program))
        inside = os.path.relpath(path, source)
        if _can_run(path) and not inside.startswith(os.pardir):
            return source, inside
    raise UsageError(
        f"PROGRAM={program!r}: there is no such file in --source-dir {source}; give its path relative to that directory"
    )


def refuse_notebook(program: str) -> None:
    """A UsageError where ``program`` is a notebook, which no Python runs."""
    if program.endswith(".ipynb"):
        raise UsageError(
            f"PROGRAM={program!r} is a notebook: make a script of it (jupyter nbconvert --to script {program}) and run "
            "that"
        )


def find_python(text: str, environ: Mapping[str, str], cwd: str = "") -> None:
    """A UsageError where ``text``, the option ``--python`` as it was typed in ``cwd``, names no program."""
    path = os.path.join(cwd, text) if "/" in text else shutil.which(text, path=environ.get("PATH")) or ""
    if not (path and os.path.isfile(path) and os.access(path, os.X_OK)):
        looked = "there is no such file that can be run" if "/" in text else "there is no such program on PATH"
        raise UsageError(f"--python={text!r}: {looked}; give the path of a Python, such as .venv/bin/python")


def find_directory(source_dir: str, cwd: str) -> str:
    """``source_dir`` (absolute; ``cwd`` where it is empty); a UsageError where it isn't there."""
    source = os.path.abspath(os.path.join(cwd, source_dir))
    if not os.path.isdir(source):
        raise UsageError(f"--source-dir={source_dir!r}: there is no directory {source}")
    return source


def _can_run(path: str) -> bool:
    """A file, or a package's directory."""
    return os.path.isfile(path) or os.path.isfile(os.path.join(path, "__main__.py"))


def find_file(path: str, option: str, cwd: str) -> str:
    """``path`` (absolute) of a file that is there; a UsageError names ``option``."""
    found = os.path.abspath(os.path.join(cwd, path))
    if not os.path.isfile(found):
        why = f"{found} is a folder" if os.path.isdir(found) else f"there is no file {found}"
        raise UsageError(f"{option}={path!r}: {why}")
    return found


def read_json(text: str, option: str, cwd: str) -> dict[str, Any]:
    """The JSON object in ``text``, or in the file it names. A UsageError names ``option``."""
    where = option
    if not text.lstrip().startswith(("{", "[", '"')):
        path = os.path.join(cwd, text)
        where = f"{option} (file {path})"
        try:
            text = read_regular(path, _LARGEST_JSON).decode()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it isn't UTF-8 text"
            raise UsageError(
                f"{option}={text!r}: expected a JSON object or a file holding one, and {path} can't be read: {why}"
            ) from None
    try:
        value = checked(json.loads(text))
    except RecursionError:
        raise UsageError(f"{where}: expected a JSON object, got one that is nested too deeply") from None
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


def fetched_channels(texts: list[str], cwd: str) -> dict[str, str]:
    """Those of the ``--channel`` texts that every host brings itself, as ``muster launch`` does, each complete by its
    text: a URI, or words behind a semicolon. What exists is a path.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, place = text.partition("=")
        if os.path.exists(os.path.join(cwd, place)) or (is_path(place) and ";" not in place):
            continue
        channel = read_channel(text, cwd)
        words = [word for word in place.split(";")[1:] if word]
        found[text] = ";".join((f"{name}={channel.uri}", *words))
    return found


def read_sharded(names: list[str], channels: Mapping[str, str]) -> tuple[str, ...]:
    """The names of channels that are directories; a UsageError for any other."""
    folders = [name for name, path in channels.items() if os.path.isdir(path)]
    for name in names:
        if name not in folders:
            expected = " or ".join(folders) if folders else "a --channel NAME=DIRECTORY beside it"
            raise UsageError(f"--sharded={name}: no channel of this job that is a directory; expected {expected}")
    return tuple(names)


def read_host_slots(text: str, hosts: int) -> tuple[int, ...]:
    """``2,4`` as slots of the first host, the second, …; one number per host."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 6 and 0 < int(part) <= MOST_COUNTED for part in parts):
        raise UsageError(f"--host-slots={text!r}: expected whole numbers from 1, separated by commas, such as 2,4")
    if len(parts) != hosts:
        raise UsageError(f"--host-slots={text!r}: expected one number for each of the {hosts} hosts, got {len(parts)}")
    return tuple(int(part) for part in parts)


def read_size(text: str, option: str, least: int = 1) -> int:
    """``512m``, ``2g`` or ``1.5GiB`` as bytes; powers of 1,024, as Docker reads them."""
    found = SIZE.fullmatch(text.strip())
    size = int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " ")) if found else 0
    if size < least:
        raise UsageError(f"{option}={text!r}: expected a size of {least} bytes or more, such as 512m or 2g")
    return size


def read_cpus(text: str) -> float:
    """``1.5`` as a number of processors."""
    try:
        cpus = float(text)
    except ValueError:
        cpus = 0.0
    if not 0.01 <= cpus < 1e6:
        raise UsageError(f"--cpus={text!r}: expected a number of processors, such as 2 or 1.5")
    return cpus


def read_gpus(text: str) -> str:
    """``text`` itself, where it is one of the words for GPUs or a number of them."""
    if text not in ("auto", "all", "none") and not (text.isdecimal() and int(text)):
        raise UsageError(f"--gpus={text!r}: expected auto, all, none, or how many each host gets")
    return text


def check_job(job: LocalJob) -> LocalJob:
    """The job itself, if a platform would take its name; else a UsageError."""
    if not NAME.fullmatch(job.name):
        raise UsageError(f"--job-name={job.name!r}: expected up to 63 of A-Z a-z 0-9 -, not - at either end")
    return job
