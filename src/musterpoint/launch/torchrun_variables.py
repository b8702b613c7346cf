"""torchrun's own variables: each of its flags reads ``PET_<FLAG>`` where it isn't given. Pure.

What the plan settles otherwise is overridden, and said where it would have made a difference; the rest is torchrun's.
Source: ``get_args_parser`` of torch/distributed/run.py and argparse_util.py, torch 2.13.
"""

from typing import Mapping, NamedTuple

from musterpoint.errors import UsageError

PREFIX = "PET_"
VIRTUAL = "PET_VIRTUAL_LOCAL_RANK"

HONOURED = (
    "EVENT_LOG_HANDLER", "MONITOR_INTERVAL", "ROLE", "SHUTDOWN_TIMEOUT", "SIGNALS_TO_HANDLE", "START_METHOD",
    "VIRTUAL_LOCAL_RANK",
)  # fmt: skip
"""Left to torchrun: they change nothing of what is planned, but for the local rank, which the stub then knows."""

OVERRIDDEN: dict[str, str] = {
    "NNODES": "the hosts are those of the roll call",
    "NPROC_PER_NODE": "ranks per host are --slots",
    "NODE_RANK": "the roll call gives every host its place",
    "MASTER_ADDR": "the roll call gives the leader's address",
    "MASTER_PORT": "the rendezvous port is --master-port",
    "LOCAL_ADDR": "the roll call gives every host's address",
    "RDZV_BACKEND": "how agents meet is --rendezvous",
    "RDZV_ENDPOINT": "agents meet where the roll call says, at --master-port",
    "RDZV_ID": "the job's name is the rendezvous id",
    "RDZV_CONF": "agents meet as the roll call says",
    "STANDALONE": "agents meet as the roll call says",
    "MAX_RESTARTS": "the first failure ends the job",
    "MODULE": "a module is started by -m",
    "NO_PYTHON": "the stub starts whatever the program is",
    "RUN_PATH": "the stub starts the program",
    "LOG_DIR": "a file per rank is --log-dir",
    "REDIRECTS": "a file per rank is --log-dir",
    "TEE": "a file per rank is --log-dir",
    "LOCAL_RANKS_FILTER": "ranks whose output is forwarded are --log-ranks",
    "DUPLICATE_STDOUT_FILTERS": "the ranks' output doesn't go through torchrun",
    "DUPLICATE_STDERR_FILTERS": "the ranks' output doesn't go through torchrun",
}
"""By the name without its prefix: what counts instead."""

SWITCHES = ("STANDALONE", "MODULE", "NO_PYTHON", "RUN_PATH", "VIRTUAL_LOCAL_RANK")
"""Read as numbers when torchrun starts, also where the flag is given: another text is a traceback there."""


class Variables(NamedTuple):
    """``unset`` are those that torchrun must not see, ``notes`` say which were not followed.

    ``virtual`` is true where torchrun tells every rank that its local rank is 0.
    """

    unset: tuple[str, ...]
    notes: tuple[str, ...]
    virtual: bool


def read_variables(environ: Mapping[str, str], flags: Mapping[str, str]) -> Variables:
    """What becomes of torchrun's variables in ``environ``; ``flags`` are those that the plan gives (``nnodes``: ``2``).

    Raises:
        UsageError: a switch that counts is no number.
    """
    unset, notes = [], []
    for name, why in OVERRIDDEN.items():
        text = environ.get(PREFIX + name)
        if text is None:
            continue
        planned = flags.get(name.lower().replace("_", "-"))
        if planned is None or name in SWITCHES:
            unset.append(PREFIX + name)
        if text not in ("", planned) and not (name in SWITCHES and text == "0"):
            notes.append(f"{PREFIX}{name}={text} isn't followed: {why}")
    # torchrun would read an empty text, and find no number in it
    unset += [PREFIX + name for name in HONOURED if environ.get(PREFIX + name) == ""]
    return Variables(tuple(unset), tuple(notes), _virtual(environ))


def _virtual(environ: Mapping[str, str]) -> bool:
    text = environ.get(VIRTUAL) or "0"
    try:
        return bool(int(text))
    except ValueError:
        raise UsageError(f"{VIRTUAL}={text!r}: expected 1 or 0, which is all that torchrun reads") from None
