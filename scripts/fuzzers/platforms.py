"""The variables of every platform, and our options, with values that nobody sets: a job comes of them, or a sentence.

What must hold: reading them ends in little time and memory with a job or an error of musterpoint's own, which names a
variable; so does reading torchrun's command lines, and what mpirun gives to its remote shell. The variables are those
that stand in the readers' own text, so a new reader's are among them.
"""

from __future__ import annotations

import json
import random
import re
import signal
import time
import traceback
from pathlib import Path
from typing import Any, Callable

import musterpoint
from fuzzers import memory
from fuzzers.findings import MOST_WRONG, Findings
from musterpoint.base import settings
from musterpoint.base.errors import MusterError
from musterpoint.cli import torchrun, torchrun_flags
from musterpoint.core.job.read import read_job
from musterpoint.core.supervise.mpi_daemons import NotADaemon, read_daemon

SECONDS = 10.0
"""Of work, for one input; a thousand times what one takes."""
MEBIBYTES = 400
LONGEST = 4000

READERS = {
    path.stem: sorted(set(re.findall(r"\"([A-Z][A-Z0-9]*_[A-Z0-9_]+)\"", path.read_text(encoding="utf-8"))))
    for path in sorted((Path(musterpoint.__file__).parent / "core" / "job").rglob("*.py"))
}
NAMES = {module: names for module, names in READERS.items() if len(names) > 1}
OPTIONS = [option.variable for option in settings.OPTIONS]
VALUES = (
    "", " ", "0", "1", "2", "3", "-1", "1.5", "00", "+1", "1_0", "\u0663", "9" * 30, "9" * 5000, "1:2", "2:2", "nan",
    "node1",
    "node[1-2]", "node[1-3,5]", "n[1", "n]1[", "n[2-1]", "n[0-99999999]", "n[0-9][0-9][0-9][0-9][0-9]", "n[1-]",
    "n[,]", ",",
    "a,b", "a,,b", "a b", "a,a", "1(x2)", "2(x3),1", "1(x99999999)", "(x2)", "algo-1", "algo-1:29500", ":29500",
    "a:b:c",
    "[::1]:29400", "::1", "10.0.0.1", "10.0.0.1,10.0.0.2", "10.0.0.1:6000", "{}", "[]", "null", '{"cluster": {}}',
    "[" * 5000,
    '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}', '{"task": 3, "cluster": [1]}',
    '{"cluster": {"worker": {"a": 1}}, "task": {"type": 1, "index": "x"}}', "\x1b[2J", "a\nb", "\udcff", "日本",
    "x" * 300,
    "x" * 100_000, "/", "../..", "a=b", "true", "PyTorch", "MPI", "master-0", "worker-1",
    "job-name-0-1.svc.cluster.local",
)  # fmt: skip
WORDS = (
    "--nnodes", "--nnodes=1:2", "--nnodes=2", "--nproc-per-node", "--nproc_per_node=gpu", "--node-rank=1",
    "--rdzv-endpoint",
    "--rdzv-endpoint=a:1:2", "--rdzv-backend=c10d", "--rdzv-conf=a=b,c", "--standalone", "--max-restarts=x",
    "--tee=3:1",
    "--tee", "--log-dir=", "--redirects=9", "-m", "-r", "-t", "--module=x", "--", "--unknown", "--n", "--nnodes=",
    "=", "-",
    "--muster-stop-grace", "--muster-stop-grace=x", "--muster-", "--master-port=99999", "--master_addr", "train.py",
    "--help=1",
    "--local-ranks-filter=0,x", "--signals-to-handle=SIGX", "--numa-binding=no", "--duplicate-stdout-filters=(",
    "--role=",
)  # fmt: skip
DAEMON = (
    "orted", "/opt/bin/orted", "--daemonize", "-mca", "ess", '"env"', "PATH=/a:$PATH ; export PATH ; /a/orted", ";",
    "'", '"',
    "export", "LD_LIBRARY_PATH=$(id)", "`id`", "$PATH", "hydra_pmi_proxy", "--control-port", "a:1",
    "set path = ( /a $path ) ;",
    "setenv A", "\\", "&&", "rm", "-rf", "\x1b", "\udcff", "x" * 5000, "", " ", "{muster:agent}",
)  # fmt: skip


def environment(dice: random.Random) -> dict[str, str]:
    """Variables of a reader or two, some of another, and now and then an option."""
    found: dict[str, str] = {}
    for module in dice.sample(sorted(NAMES), dice.choice((1, 1, 2, 3))):
        names = NAMES[module]
        for name in dice.sample(names, dice.randint(1, len(names))):
            plain = dice.choice(("0", "1", "2", "node[1-2]", "algo-1"))
            found[name] = plain if dice.random() < 0.5 else dice.choice(VALUES)
    if dice.random() < 0.3:
        found[dice.choice(OPTIONS)] = dice.choice(VALUES)
    return {**found, "SAGEMAKER_BASE_DIR": "/nonexistent"}


def _reads(dice: random.Random) -> tuple[Any, Callable[[], object]]:
    environ = environment(dice)

    def read() -> object:
        return read_job(environ, settings.from_environ(environ), program="train.py")

    return environ, read


def _reads_as(dice: random.Random) -> tuple[Any, Callable[[], object]]:
    """The reader that the user names, whatever there is."""
    environ = environment(dice)
    environ["MUSTER_PLATFORM"] = dice.choice(settings.BY_FIELD["platform"].choices or ("plain",))

    def read() -> object:
        return read_job(environ, settings.from_environ(environ), program="train.py")

    return environ, read


_COUNTS = ("NUM_{}S", "{}_COUNT", "{}S_NUM", "TOTAL_{}S", "{}_SIZE", "NUMBER_OF_{}S", "JOB_NUM_{}S")
_PLACES = ("{}_RANK", "{}_INDEX", "{}_IDX", "JOB_{}_INDEX", "{}_ORDINAL")
_PEERS = ("NODE", "HOST", "MACHINE", "WORKER", "REPLICA", "TASK", "PEER", "INSTANCE", "POD", "CONTAINER")
_ROSTERS = ("{}_HOSTS", "{}_PEERS", "{}_NODES", "{}_HOSTNAMES", "{}_HOST_LIST")


def invented(dice: random.Random) -> tuple[dict[str, str], bool]:
    """The variables of a platform that nobody knows; whether they say, or may say, that there are several hosts."""
    prefix = "".join(dice.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(dice.randint(2, 9))) + "Q"
    peer, hosts = dice.choice(_PEERS), dice.choice((1, 1, 2, 3, 16, 1024))
    place = dice.choice((0, 0, dice.randrange(hosts)))
    found, several = {}, False
    if dice.random() < 0.6:
        found[f"{prefix}_{dice.choice(_COUNTS).format(peer)}"] = str(hosts)
        several = hosts > 1 and peer in _PEERS[:3]
    if dice.random() < 0.6:
        counted = bool(found)
        found[f"{prefix}_{dice.choice(_PLACES).format(peer)}"] = str(place)
        several = several or hosts > 1 or place > 0 or not counted
    if dice.random() < 0.3:
        names = " ,;\n"[dice.randrange(4)].join(f"train-{number}" for number in range(hosts))
        found[dice.choice(_ROSTERS).format(prefix)] = names
        several = several or hosts > 1
    for name in ("OMP_NUM_THREADS", "DATALOADER_NUM_WORKERS", "MAX_TASKS", "NODE_VERSION", "WORKER_CLASS"):
        if dice.random() < 0.2:
            found[name] = str(dice.randint(1, 64))
    return found, several


def _invented(dice: random.Random) -> tuple[Any, Callable[[], object]]:
    """A job of one host where others may be is told so, or refused; another isn't."""
    environ, several = invented(dice)

    def read() -> object:
        try:
            job = read_job({**environ, "SAGEMAKER_BASE_DIR": "/nonexistent"}, settings.Settings(), program="train.py")
        except MusterError as error:
            if several:
                return error
            raise AssertionError("refused, and nothing says that there are several") from error
        told = len(job.hosts) > 1 or any(note.level == "warning" for note in job.notes)
        if told != several:
            raise AssertionError("told of others, and nothing says so" if told else "a silent world of one")
        return job

    return environ, read


def _torchrun(dice: random.Random) -> tuple[Any, Callable[[], object]]:
    words = [dice.choice((*WORDS, *VALUES[:20])) for _ in range(dice.randint(0, 6))] + ["train.py"][
        : dice.randint(0, 1)
    ]
    pets = [f"PET_{word.strip('-').partition('=')[0].replace('-', '_').upper()}" for word in WORDS[:20]]
    environ = {dice.choice(pets): dice.choice(VALUES) for _ in range(dice.choice((0, 0, 1, 2)))}

    def read() -> object:
        command = torchrun_flags.read_command_line(words, environ, {})
        return torchrun.translate(command.said, environ, {})

    return (words, environ), read


def _daemon(dice: random.Random) -> tuple[Any, Callable[[], object]]:
    words = [dice.choice(DAEMON) for _ in range(dice.randint(0, 8))]
    if dice.random() < 0.3:
        words = [" ".join(words)]

    def read() -> object:
        try:
            return read_daemon(words, ("orted", "prted", "hydra_pmi_proxy"))
        except NotADaemon as error:
            raise Refused(str(error)) from None

    return words, read


class Refused(MusterError):
    """A start that isn't an MPI daemon's, in a sentence."""


WAYS = (_reads, _reads, _reads, _reads_as, _invented, _invented, _torchrun, _daemon)


def _too_long(signo: int, frame: Any) -> None:
    raise TimeoutError(f"no end after {SECONDS:g} s")


def _try(read: Callable[[], object], named: bool) -> str:
    try:
        read()
        return ""
    except MusterError as error:
        text = str(error)
        if len(text) > LONGEST:
            return f"a sentence of {len(text)} characters: {text[:200]}"
        return (
            ""
            if not named or re.search(r"[A-Z]+_[A-Z]|--[a-z]|variables|/nonexistent", text)
            else f"it names no variable: {text[:300]}"
        )
    except TimeoutError as error:
        return f"{error}: {traceback.format_exc(limit=-3)}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}: {traceback.format_exc(limit=-2)[-500:]}"


def fuzz(seed: int, inputs: int) -> Findings:
    wrong: list[str] = []
    tried = 0
    before = signal.signal(signal.SIGALRM, _too_long)
    memory.forget_peak()
    try:
        while tried < inputs and len(wrong) < MOST_WRONG:
            dice = random.Random(f"{seed} {tried}")
            way = dice.choice(WAYS)
            about, read = way(dice)
            began = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, SECONDS * 20)
            said = _try(read, way in (_reads, _reads_as))
            signal.setitimer(signal.ITIMER_REAL, 0)
            taken = time.process_time() - began
            said = said or (f"it took {taken:.1f} s" if taken > SECONDS else "")
            if said:
                wrong.append(f"input {tried} of seed {seed} ({json.dumps(about)[:500]}): {said}")
            tried += 1
        most = memory.peak()
        if most > MEBIBYTES:
            wrong.append(f"it took {most} MiB of memory, expected at most {MEBIBYTES}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return Findings(tried, tuple(wrong))
