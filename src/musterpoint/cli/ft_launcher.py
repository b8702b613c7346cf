"""``muster ft_launcher``: the command line of NVIDIA's Resiliency Extension, carried out as ``muster launch`` does.

Its options are those of ``nvidia_resiliency_ext/fault_tolerance``: ``launcher.py`` and ``cli_args.py``, and fields of
``config.py``, each of which is one; 0.4 and newer, to November 2026. Old spellings
(``--ft-param-rank_heartbeat_timeout``, ``--fault-tol-cfg-path``) mean the same.
"""

from __future__ import annotations

import os
from typing import Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.cli import torchrun_based
from musterpoint.cli.options import OWN_PREFIX, Parser
from musterpoint.cli.torchrun_based import Added, Command, Translation, Words, number
from musterpoint.core.job.fields import small_text

_NAME = "ft_launcher"
_INTERVALS = "ends of ranks are events here, nothing is looked at in intervals"
_SECTIONS = "sections are of its client; a stall is seen without it (--ft-rank-heartbeat-timeout)"
_UNWATCHED = "{} aren't watched; `muster check` tries them before the job"
_NICS, _STORAGE = _UNWATCHED.format("network cards"), _UNWATCHED.format("storage and network cards")
_PROGRESS = "ranks aren't started anew where nothing was achieved since the last start"
_LEFT = "a new start waits until all ranks of the one before have ended, with what they started"
_WITHOUT = "failures are diagnosed here, on every host, without a service"
_LOGS = "output doesn't go through a server: --log-dir writes a file per rank on each host"


def _ft(name: str, metavar: str, fate: str, text: str, *others: str) -> Added:
    return Added(f"ft-{name}", metavar, fate, text, (f"ft-param-{name}", *others))  # type: ignore[arg-type]


ADDED = (
    _ft("cfg-path", "FILE", "honoured", "its section fault_tolerance; options go before it, and of what it sets the "
        "same is followed as of the options", "fault-tol-cfg-path"),
    _ft("rank-heartbeat-timeout", "S", "honoured", "the job has stalled when no rank prints anything for so long and "
        "all stand still (--stall-timeout); its client's heartbeats aren't heard"),
    _ft("initial-rank-heartbeat-timeout", "S", "honoured", "as the other timeout: the longer one counts, since a "
        "start isn't told from training"),
    _ft("restart-policy", "any-failed", "honoured", "any-failed is what musterpoint does; min-healthy is refused, "
        "since hosts can't come and go while the job runs", "restart-policy"),
    Added("term-timeout", "S", "honoured", "the time that ranks get between SIGTERM and SIGKILL (--stop-grace)"),
    Added("workers-stop-timeout", "S", "ignored", "ranks get the same time before a new start as at a stop"),
    _ft("workload-check-interval", "S", "ignored", _INTERVALS),
    _ft("node-health-check-interval", "S", "ignored", _INTERVALS),
    _ft("restart-check-interval", "S", "ignored", _INTERVALS),
    _ft("safety-factor", "X", "ignored", "timeouts aren't calculated from what was seen"),
    _ft("rank-termination-signal", "NAME", "ignored", "ranks get SIGTERM first, and SIGKILL after --term-timeout"),
    _ft("log-level", "LEVEL", "ignored", "it is of its own log"),
    _ft("rank-section-timeouts", "NAME:S,...", "ignored", _SECTIONS),
    _ft("rank-out-of-section-timeout", "S", "ignored", _SECTIONS),
    _ft("enable-nic-monitor", "BOOL", "ignored", _NICS),
    _ft("enable-nic-healthcheck", "BOOL", "ignored", _NICS),
    _ft("pci-topo-file", "FILE", "ignored", _NICS),
    _ft("link-down-path-template", "PATH", "ignored", _NICS),
    _ft("link-state-path-template", "PATH", "ignored", _NICS),
    Added("ignore-missing-fault-tol-cfg", "", "ignored", "no configuration is needed here"),
    _ft("rdzv-impl", "NAME", "ignored", "the hosts meet in the roll call"),
    _ft("per-cycle-applog-prefix", "PATH", "refused", _LOGS),
    _ft("nvrx-logfile", "FILE", "refused", _LOGS),
    _ft("enable-log-server", "BOOL", "refused", _LOGS),
    _ft("log-server-port", "PORT", "refused", _LOGS),
    _ft("log-aggregator-count", "N", "refused", _LOGS),
    _ft("log-server-log-prefix", "PATH", "refused", _LOGS),
    _ft("segment", "N", "refused", "musterpoint has no spare hosts in a job: ask the scheduler for whole domains"),
    *(_ft(name, "X", "ignored", _STORAGE)
      for name in ("enable-dist-storage-healthcheck", "storage-healthcheck-path")),
    *(_ft(name, "X", "ignored", _SECTIONS) for name in ("skip-section-response", "num-warmup-iterations")),
    *(_ft(name, "N", "ignored", _PROGRESS)
      for name in ("max-no-progress-restarts", "min-progress-iterations", "progress-update-interval")),
    *(_ft(name, "X", "ignored", _LEFT)
      for name in ("gpu-memory-reclaim-timeout", "gpu-memory-tolerance-mb", "gpu-memory-poll-interval",
                   "check-remaining-processes")),
    _ft("numa-bind-strict", "BOOL", "ignored", "--numa-binding binds ranks, or doesn't and says so"),
    _ft("install-exception-hook", "BOOL", "ignored", "a rank's error is read from what it prints"),
    *(_ft(name, "X", "refused", _LOGS)
      for name in ("log-leaf-max-queue-chunks", "log-server-graceful-shutdown-timeout")),
    *(_ft(name, "X", "refused", _WITHOUT)
      for name in ("attribution-endpoint", "attribution-startup-timeout", "attribution-llm-api-key-file",
                   "attribution-llm-base-url", "attribution-llm-model", "attribution-analysis-backend",
                   "attribution-compute-timeout", "attribution-log-level", "attribution-export-url", "attrsvc-host",
                   "attrsvc-port")),
    _ft("cycle-info-job-id", "ID", "refused", "attempts stand in timeline.json and in `muster report`"),
    _ft("cycle-info-dir", "DIR", "refused", "attempts stand in timeline.json and in `muster report`"),
)  # fmt: skip
_TIMEOUTS = ("ft-rank-heartbeat-timeout", "ft-initial-rank-heartbeat-timeout")


def from_file(path: str) -> dict[str, str]:
    """The simple values of ``path``'s section ``fault_tolerance``, by option; null counts as not set.

    The file is YAML, of which no more is read here than ``key: value`` lines.

    Raises:
        UsageError: it can't be read, or has no such section.
    """
    inside, values = False, {}
    text = small_text(path)
    for line in text.splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        if line[:1].strip() and colon:
            inside = key.strip() == "fault_tolerance"
        elif inside and colon and value.strip() not in ("", "null", "~"):
            values[f"ft-{key.strip().replace('_', '-')}"] = value.strip().strip("\"'")
    if not text or "fault_tolerance" not in text:
        raise UsageError(
            f"muster {_NAME}: --ft-cfg-path={path}: expected a YAML file with a section fault_tolerance, such as\n"
            "fault_tolerance:\n  rank_heartbeat_timeout: 450"
        )
    return values


def translate(words: Words) -> Translation:
    """The words of ``muster torchrun``, and what of the file is ignored.

    Raises:
        UsageError: a value is wrong.
    """
    said, ignored = words.said, list[tuple[str, str]]()
    file = from_file(said["ft-cfg-path"]) if "ft-cfg-path" in said else {}
    known = {added.name: added for added in ADDED}
    for name in file:
        if name not in known or known[name].fate != "honoured":
            why = known[name].help if name in known else "it is of its own parts"
            ignored.append((f"{name.removeprefix('ft-').replace('-', '_')} of {said['ft-cfg-path']}", why))
    said = {**{name: text for name, text in file.items() if name in known}, **said}
    own: list[str] = []
    if said.get("ft-restart-policy", "any-failed") != "any-failed":
        raise UsageError(
            f"muster {_NAME}: --ft-restart-policy={said['ft-restart-policy']!r}: expected any-failed; hosts can't come "
            "and go while the job runs"
        )
    timeouts = [number(_NAME, name, said[name]) for name in _TIMEOUTS if said.get(name, "null") != "null"]
    if timeouts:
        own += [f"{OWN_PREFIX}stall-timeout", max(timeouts, key=float)]
    if "term-timeout" in said:
        own += [f"{OWN_PREFIX}stop-grace", number(_NAME, "term-timeout", said["term-timeout"])]
    options = words.rest[: words.program]
    endpoint = any(word.startswith(("--rdzv-endpoint", "--rdzv_endpoint")) for word in options)
    backend = any(word.startswith(("--rdzv-backend", "--rdzv_backend")) for word in options)
    if endpoint and not backend:  # its default is c10d, where torchrun's is static
        own += ["--rdzv-backend", "c10d"]
    return Translation([*own, *words.rest], [], ignored)


COMMAND = Command(
    _NAME,
    ADDED,
    f"""usage: muster ft_launcher [ft_launcher's and torchrun's options] [{OWN_PREFIX}...] [--] PROGRAM [ARGS...]

The command line of ft_launcher of NVIDIA's Resiliency Extension; start it once per host. torchrun's options are those
of `muster torchrun --help`. Scripts that use its client (RankMonitorClient) need its monitors, which aren't here.
--ft-param-NAME is --ft-NAME.
""",
    translate,
    """examples:
  muster ft_launcher --nproc-per-node 8 --ft-rank-heartbeat-timeout 450 --max-restarts 5 train.py
  muster ft_launcher --nnodes 2 --nproc-per-node 8 --rdzv-endpoint node-a:29500 --ft-cfg-path ft.yaml train.py
""",
)


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster ft_launcher`` with ``argv`` (the words after the command); the job's exit code."""
    return torchrun_based.main(COMMAND, argv, environ)


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return torchrun_based.parsers(COMMAND)
