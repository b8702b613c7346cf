"""``muster hyperpodrun``: the command line of HyperPod's elastic agent, carried out as ``muster launch`` does.

Its options are those that its public page lists (``hyperpod-elastic-agent``, "HyperPod elastic agent arguments").
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from typing import Any, Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.cli import torchrun_based
from musterpoint.cli.errors import guarded
from musterpoint.cli.options import OWN_PREFIX, Parser
from musterpoint.cli.torchrun_based import Added, Command, Translation, Words, split

_NAME = "hyperpodrun"
_SERVER = "no operator is spoken to here, so no server is started"
_INPROCESS = "ranks are started anew, as processes: --max-restarts"
ADDED = (
    Added("shutdown-signal", "NAME", "honoured", "SIGTERM is what ranks get first; SIGKILL: they get no time "
          "(--stop-grace 0)"),
    Added("pre-train-script", "FILE", "honoured", "run on each host before the ranks start; where it fails, the job "
          "ends on all hosts with its code"),
    Added("pre-train-args", "WORDS", "honoured", "its arguments"),
    Added("post-train-script", "FILE", "honoured", "run on each host when the job has ended well; its code is the "
          "host's"),
    Added("post-train-args", "WORDS", "honoured", "its arguments"),
    Added("server-host", "ADDRESS", "ignored", _SERVER),
    Added("server-port", "PORT", "ignored", _SERVER),
    Added("server-log-level", "LEVEL", "ignored", _SERVER),
    Added("server-shutdown-timeout", "S", "ignored", _SERVER),
    Added("inprocess-restart", "", "refused", _INPROCESS),
    Added("inprocess-timeout", "S", "refused", _INPROCESS),
)  # fmt: skip


def translate(words: Words) -> Translation:
    """The words of ``muster torchrun``, and sentences for the log.

    Raises:
        UsageError: a value is wrong.
    """
    said, notes = words.said, []
    options, program = list(words.rest[: words.program]), words.rest[words.program :]
    for at, word in enumerate(options):
        name, equals, value = word.replace("_", "-", 2).partition("=")
        if name == "--rdzv-backend" and (value if equals else (options[at + 1 : at + 2] or [""])[0]) == "hyperpod":
            del options[at : at + (1 if equals else 2)]
            notes.append("--rdzv-backend hyperpod: the hosts meet in the roll call, without the training operator")
            break
    how = said.get("shutdown-signal", "SIGTERM").removeprefix("SIG")
    if how not in ("TERM", "KILL"):
        raise UsageError(f"muster {_NAME}: --shutdown-signal={said['shutdown-signal']!r}: expected SIGTERM or SIGKILL")
    own = [f"{OWN_PREFIX}stop-grace", "0"] if how == "KILL" else []
    return Translation([*own, *options, *program], notes, [])


def run_script(path: str, words: str, environ: Mapping[str, str]) -> int:
    """The exit code of a script that is run on this host, with signals passed on to it.

    A ``.py`` file is Python's, an executable one starts itself, any other is bash's.
    """
    if not os.path.isfile(path):
        raise UsageError(f"muster {_NAME}: {path} is no file, expected a script to run before or after training")
    command = [sys.executable] if path.endswith(".py") else [] if os.access(path, os.X_OK) else ["bash"]
    sys.stdout.flush()
    children: list[subprocess.Popen[bytes]] = []
    early: list[int] = []  # came before there was a child

    def pass_on(signo: int, _frame: Any) -> None:
        for child in children:
            child.send_signal(signo)
        if not children:
            early.append(signo)

    before = {signo: signal.signal(signo, pass_on) for signo in _STOPS}
    try:
        child = subprocess.Popen([*command, os.path.abspath(path), *shlex.split(words)], env=dict(environ))
        children.append(child)
        for signo in early:
            child.send_signal(signo)
        code = child.wait()
    finally:
        for signo, handler in before.items():
            signal.signal(signo, handler)
    return 128 - code if code < 0 else code


_STOPS: tuple[Any, ...] = (signal.SIGTERM, signal.SIGINT)


COMMAND = Command(
    _NAME,
    ADDED,
    f"""usage: muster hyperpodrun [hyperpodrun's and torchrun's options] [{OWN_PREFIX}...] [--] PROGRAM [ARGS...]

The command line of HyperPod's elastic agent; start it once per host. torchrun's options are those of
`muster torchrun --help`. HyperPod's training operator isn't spoken to: jobs are started anew by --max-restarts.
""",
    translate,
    """examples:
  muster hyperpodrun --nnodes 2 --nproc-per-node 8 --rdzv-backend hyperpod train.py
  muster hyperpodrun --nproc-per-node 8 --pre-train-script pre.sh --pre-train-args "1 2" train.py --epochs 3
""",
)


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster hyperpodrun`` with ``argv`` (the words after the command); the job's exit code."""
    try:
        words = split(COMMAND, argv)
    except UsageError:
        return torchrun_based.main(COMMAND, argv, environ)
    said, asked = words.said, words.rest[: words.program]
    only_shown = bool({"-h", "--help", f"{OWN_PREFIX}plan"} & {*asked}) or not words.rest[words.program :]
    code = 0
    if "pre-train-script" in said and not only_shown:
        code = guarded(lambda: run_script(said["pre-train-script"], said.get("pre-train-args", ""), environ))
    if code:  # the other hosts are told by a job that ends at once
        fails = f"echo {shlex.quote(said['pre-train-script'])} ended with code {code} >&2; exit {code}"
        argv = [*argv[: len(argv) - len(words.rest) + words.program], "/bin/sh", "-c", fails]
    code = torchrun_based.main(COMMAND, argv, environ)
    if "post-train-script" in said and not only_shown and code == 0:
        code = guarded(lambda: run_script(said["post-train-script"], said.get("post-train-args", ""), environ))
    return code


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return torchrun_based.parsers(COMMAND)
