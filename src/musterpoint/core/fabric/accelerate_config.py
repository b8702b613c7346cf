"""What Hugging Face's accelerate would set on this host: asked of accelerate itself, in the user's Python.

That imports torch: 1 to 2 s per host, before the roll call. The program that answers is
:mod:`musterpoint.embedded.programs.accelerate_settings`.
"""

import json
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from musterpoint.base import probe
from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.embedded.programs.registry import fact_of, text_of

if TYPE_CHECKING:
    from musterpoint.base.probe import Ask

WORDS, FILE = "words", "file"
"""Where an option of :attr:`Accelerate.shape` is from: the command line, or the configuration file."""

ATTEMPTS = 2
"""The first import of torch from a network's file system may take too long; the next one finds its files in memory."""


class Accelerate(NamedTuple):
    """What accelerate says about this host, and about a command line that is one of ``accelerate launch``.

    version: its version.
    file: the configuration file that counts; empty: none.
    kind: what ``accelerate launch`` would start, such as ``cpu``, ``several devices``, ``FSDP`` or ``deepspeed``.
    on_cpus: whether its ranks compute on CPUs.
    backend: how ranks with ``variables`` join one world; empty: each would be a world of one.
    variables: what it would set for its ranks.
    shape: options about the world (``num_processes``, …): each value, and :data:`WORDS` or :data:`FILE`.
    unused: options given that only the launcher behind ``accelerate launch`` would read.
    script: the program of the line, or its module or command; empty: there was no line.
    module: whether ``script`` is a module.
    no_python: whether ``script`` is a command.
    arguments: the program's.
    """

    version: str
    file: str = ""
    kind: str = "one device"
    on_cpus: bool = False
    backend: str = ""
    variables: dict[str, str] = {}
    shape: dict[str, tuple[Any, str]] = {}
    unused: tuple[str, ...] = ()
    script: str = ""
    module: bool = False
    no_python: bool = False
    arguments: tuple[str, ...] = ()

    def given(self, name: str, where: str) -> Any:
        """The option ``name`` as it was given there; None where it wasn't."""
        value, place = self.shape.get(name, (None, ""))
        return value if place == where else None


ASSUMED = Accelerate("", backend="gloo")
"""Stands in a plan for the answer of an accelerate that isn't there."""
_SWITCHES = frozenset((
    "-m", "--module", "-q", "--quiet", "--cpu", "--debug", "--downcast-bf16", "--dynamo-use-dynamic",
    "--dynamo-use-fullgraph", "--dynamo-use-regional-compilation", "--enable-cpu-affinity",
    "--fp8-use-autocast-during-eval", "--multi-gpu", "--no-python", "--no-tpu-cluster", "--same-network", "--tpu",
    "--tpu-cluster", "--tpu-use-sudo", "--use-deepspeed", "--use-fsdp", "--use-megatron-lm",
    "--use-parallelism-config",
))  # fmt: skip
"""Options of ``accelerate launch`` without a value (accelerate 1.15, ``launch_command_parser``)."""


def read_without(words: Sequence[str]) -> Accelerate:
    """What the words after ``accelerate launch`` say of the world and the program, for a plan without accelerate.

    Raises:
        UsageError: they name no program.
    """
    rest, said = list(words), set[str]()
    shape = dict[str, tuple[Any, str]]()
    while rest and rest[0].startswith("-"):
        flag, equals, value = rest.pop(0).partition("=")
        name = flag.replace("_", "-")
        said.add(name)
        if name not in _SWITCHES and not equals:
            value = rest.pop(0) if rest else ""
        if name in ("--num-processes", "--num-machines") and value.isdecimal():
            shape[name[2:].replace("-", "_")] = (int(value), WORDS)
    if not rest:
        raise UsageError("accelerate launch: no script is named; expected `accelerate launch [options] SCRIPT`")
    return ASSUMED._replace(
        shape=shape,
        script=rest[0],
        module=bool(said & {"-m", "--module"}),
        no_python="--no-python" in said,
        arguments=tuple(rest[1:]),
    )


def ask_accelerate(
    interpreter: str,
    words: Sequence[str],
    config: str,
    folder: str,
    environ: Mapping[str, str],
    ask: "Ask | None" = None,
) -> Accelerate:
    """Asks the accelerate of ``interpreter``.

    ``words`` follow ``accelerate launch`` on a command line (empty: there is none). ``config`` is a configuration file
    (empty: the words' own, else the one that accelerate looks for). Relative paths of such files begin at ``folder``.

    Raises:
        UsageError: accelerate refuses the words or the file.
        LauncherError: there is no accelerate, or it gives no answer.
    """
    request = json.dumps({"words": list(words), "config": config, "folder": folder})
    how = ask or probe.ask
    try:
        for _ in range(ATTEMPTS):
            answer = how([interpreter, "-c", text_of("accelerate_settings"), request], environ, "/", True)
            if answer.status is not None:
                break
    except (OSError, ValueError) as error:
        raise LauncherError(f"launcher accelerate: {interpreter} can't be started: {error}") from None
    lines = answer.text.rstrip().splitlines()
    value = next(filter(None, map(fact_of, reversed(lines))), None)
    if answer.status or value is None:
        raise LauncherError(f"launcher accelerate: {_why(interpreter, answer.status, lines)}")
    if "error" in value:
        raise UsageError(str(value["error"]))
    value["shape"] = {name: (row[0], row[1]) for name, row in value["shape"].items()}
    return Accelerate(**{**value, "unused": tuple(value["unused"]), "arguments": tuple(value["arguments"])})


def _why(interpreter: str, status: int | None, lines: Sequence[str]) -> str:
    last = lines[-1] if lines else "it printed nothing"
    if last.startswith("ModuleNotFoundError"):
        return (
            f"{interpreter} can't import accelerate ({last}): install accelerate and torch for it, or name another "
            "Python with --python"
        )
    ended = f"no answer after {ATTEMPTS} times {probe.TIMEOUT:g} s" if status is None else f"exit code {status}"
    return f"{interpreter} was asked what accelerate sets and failed ({ended}): {last}"
