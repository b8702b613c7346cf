"""Stacks of ranks that print nothing → which ranks wait where, and whether the job stands still. It does no I/O.

A rank's stack says where it is in its program (:class:`Position`); the positions of all ranks make one sentence, with
those that the others wait for at its end. Names of frames are those of PyTorch 2.13, DeepSpeed, Horovod, mpi4py,
TensorFlow 2.21.
"""

from __future__ import annotations

import os
import re
from typing import Any, Iterable, Mapping, Sequence

from musterpoint.base.failure import numbers
from musterpoint.base.position import LONGEST, Position
from musterpoint.base.records import NamedTuple
from musterpoint.core.diagnosis.flight_records import MOST_BYTES, last_collective, masked, waits_in

__all__ = ["MOST_BYTES", "LongCalls", "got_on", "last_collective", "masked", "position", "raised_aside", "waits_in"]

Frame = tuple[str, str, int]
"""A function's name, its file (below site-packages, else its short name) and line; stacks begin with the innermost."""

_COLLECTIVE_FILES = (
    "torch/distributed/", "torch/_C/", "deepspeed/comm/", "horovod/", "mpi4py/", "jax/experimental/",
    "jax/_src/distributed.py", "tensorflow/python/distribute/",
)  # fmt: skip
_COLLECTIVES = frozenset((
    "all_reduce", "allreduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "allgather", "barrier",
    "monitored_barrier", "broadcast", "broadcast_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter", "gather", "gather_object", "all_to_all", "all_to_all_single", "alltoall", "send", "recv", "isend",
    "irecv", "batch_isend_irecv", "init_process_group", "new_group", "destroy_process_group", "Allreduce", "Bcast",
    "Barrier", "synchronize", "initialize",
))  # fmt: skip
_INSIDE = {
    "_engine_run_backward": "backward (its gradient all-reduce)",
    "_tcp_rendezvous_handler": "init_process_group",
    "_init_process_group": "init_process_group",
    "_sync_params_and_buffers": "broadcast (DDP's first sync)",
    "quick_execute": "a step of TensorFlow",
    "batch_all_reduce": "all_reduce",
    "batch_reduce_to": "all_reduce",
}
"""Functions of PyTorch and TensorFlow in which a rank waits for others, though no collective is on its Python stack."""
_COMPUTES = ("_engine_run_backward", "quick_execute")
"""Those of them in which a rank that uses the processor computes."""
_MPI_CALL = re.compile(
    r"\.(Barrier|[Bb]cast|[Gg]atherv?|[Ss]catterv?|[Aa]llgatherv?|[Aa]lltoall[vw]?|[Rr]educe|[Aa]llreduce|Reduce_scatter|"
    r"[Ss]can|[Ss]endrecv|[Rr]ecv|[Ss]end|barrier|[Ww]ait(?:all|any|some)?|Probe|probe)\("
)
"""mpi4py's operations: they are functions in C, so the line that calls them is the only sign."""
_PLACES = (
    ("torch/utils/data/", "data loading"), ("datasets/", "data loading"), ("webdataset/", "data loading"),
    ("torch/distributed/checkpoint/", "a checkpoint"), ("torch/serialization.py", "a checkpoint"),
    ("safetensors/", "a checkpoint"), ("torch/_inductor/", "compilation"), ("torch/_dynamo/", "compilation"),
    ("triton/", "compilation"), ("boto3/", "an S3 request"), ("botocore/", "an S3 request"),
    ("urllib3/", "an HTTP request"), ("subprocess.py", "a subprocess"),
)  # fmt: skip
_WAITS = {
    "threading.py": "a lock",
    "queue.py": "a queue",
    "selectors.py": "a pipe or socket",
    "multiprocessing/synchronize.py": "a lock between processes",
    "multiprocessing/connection.py": "a pipe",
    "subprocess.py": "a subprocess",
    "socket.py": "a socket",
    "ssl.py": "a socket",
}
_OWN_WAITS = ("hrtimer_nanosleep", "do_wait", "pipe_read", "anon_pipe_read", "n_tty_read")
"""Places in the kernel in which a thread waits for nothing that an MPI would bring."""
_ASLEEP = "hrtimer_nanosleep"
_COMMUNICATION = re.compile(r"packages/(?:torch/distributed|torch/cuda|jax|tensorflow|horovod|mpi4py|deepspeed|ray)/")
_MAY_WAIT = re.compile(r"\b(?:item|cpu|to|tolist|numpy|wait|result|get|synchronize|block_until_ready|barrier)\(")
"""Calls that may wait for what other ranks bring: on a GPU, or by an unknown library."""
_IN = re.compile(r"is in ([^ :]+) at (\S+:\d+)")
_LIBRARY = ("multiprocessing/", "concurrent/", "asyncio/", "torch/", "importlib", "runpy.py", "json/", "logging/")
_DATA_WORDS = ("data", "batch", "loader", "sampler", "__getitem__", "collate")
_STEP_PARTS = ("train", "step", "_end", "_begin")
"""Of the names of functions that use a batch, such as on_train_batch_end."""
_MAIN = ("main", "<module>")
_WAITS_FIRST = {"collective": 0, "call": 1, "place": 2, "stopped": 2, "unknown": 2}
_PLURAL = {"is": "are", "has": "have", "waits": "wait"}


_WHY = (
    (
        re.compile(r"No available node types can fulfill resource request (\{[^{}]*\})"),
        "no node of Ray's cluster can meet the request of {0}: ask for less, or give nodes more (--slots)",
    ),
)
"""Texts that a framework prints while it waits for ever (Ray 2.60's autoscaler), and a sentence for people."""


class Stall(NamedTuple):
    """The ranks of a job that stands still.

    ``sentence``: which ranks wait where. ``suspect``: the first rank that the others seem to wait for; None: none
    stands out.
    """

    sentence: str
    suspect: int | None


def why(printed: bytes) -> str:
    """The reason for a wait that a rank's last output names; empty: none."""
    text = printed.decode("utf-8", "replace")
    said = (
        sentence.format(*found[-1])
        for row, sentence in _WHY
        if (found := [each.groups() for each in row.finditer(text)])
    )
    return next(said, "")


def position(rank: int, facts: Mapping[str, Any], world: int = 0) -> Position:
    """Where ``rank`` of ``world`` ranks is. ``facts`` are what the program ``stack_sampler`` found of its process:

    ``threads`` (each with ``name`` and ``frames``; none: the stack can't be read, and ``error`` says why), ``source``
    (the text of the line at which the main thread is), ``state`` and ``wchan`` as in Linux' ``/proc``, ``moving``, and
    ``children``, the same facts of processes it started. ``mpi``: it has an MPI's library; ``one_call``: and at both
    looks its main thread was at the same line, and did nothing that can be seen but to use the processor. ``waits``: as
    :class:`LongCalls` has found it. A thread's ``world``: of how many ranks torch makes its first group there.
    """
    waits = facts.get("waits") is True
    moving = facts.get("moving") is True and not waits
    kind, words, spot = _described(facts, moving)
    if kind == "place" and facts.get("one_call") is True and _may_wait_in_mpi(facts, moving):
        kind, words = "call", f"{words}, in one call of a library"
    group_of = _main(facts).get("world", world)
    if world and group_of != world and words == "init_process_group":
        words += f" for {group_of} ranks"
    call = int(facts.get("call") or 0) if kind == "collective" else 0
    return Position(rank, kind, words[:LONGEST], spot[:LONGEST], moving, call)  # type: ignore[arg-type]


def whereabouts(facts: Mapping[str, Any]) -> str:
    """Says where a rank is: ``at train.py:41, in save, asleep``; empty: nothing is known.

    ``still`` among its facts: the main thread has had no turn in a moment. One that waits for others may sleep too, but
    looks now and then.
    """
    one, wchan = position(0, facts), facts.get("wchan")
    if one.kind == "unknown":
        stuck = f"in the kernel ({wchan})" if facts.get("state") == "D" else "asleep" if wchan == _ASLEEP else ""
        return stuck if facts.get("still") else ""
    if one.kind == "collective":
        return f"at {one.spot}, in {one.words}"
    words = _IN.sub(lambda found: f"at {found[2]}" + (f", in {found[1]}" if found[1] != "<module>" else ""), one.words)
    return words.removeprefix("is ") + (f" at {one.spot}" if one.spot else "")


def latecomer(facts: Mapping[str, Any]) -> str:
    """Says where a rank is that waits for no others; empty: it may, or has ended."""
    kind, frames = position(0, facts).kind, _telling(facts)
    asleep = facts.get("still") and facts.get("wchan") == _ASLEEP
    if kind in ("collective", "call") or facts.get("state") in ("Z", "X"):
        return ""
    if kind == "place" and not asleep:
        waits = _COMMUNICATION.search(frames[0][1]) or _MAY_WAIT.search(str(facts.get("source", "")))
        if waits or _users_frame(frames) is None or (facts.get("mpi") is True and _may_wait_in_mpi(facts, False)):
            return ""
    return whereabouts(facts)


def with_raised(position: Position, raised: str, aside: str = "") -> Position:
    """``position`` of a rank that has raised ``raised`` (empty: it has not) and is on its way out.

    ``aside``: the exception that ended a thread or a child of it, for which it may wait.
    """
    if not (raised or aside):
        return position
    name = raised.partition(":")[0]
    words = f"waits in {position.words} ({position.spot})" if position.kind == "collective" else position.words
    words = f"has raised {name} and {words}" if raised else f"{words}, and a thread or child of it raised {aside}"
    moving = position.moving and not raised  # the others don't wait for what it does at its end
    return position._replace(kind="place", words=words[:LONGEST], raised=raised[:LONGEST], moving=moving)


class LongCalls:
    """In how many looks in a row each rank here was in one and the same call, and all of it in the libraries of an MPI.

    Such a rank looks for messages and does nothing else, so it doesn't move, though it uses the processor. The same may
    be seen for a while of a healthy rank, where a library computes and sends in one long call.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def looked(self, found: Mapping[str, dict[str, Any]]) -> None:
        """Adds to what was found of each rank whether it ``waits``. ``mpi_call``: its call, 0 for none."""
        for rank, facts in found.items():
            call = int(facts.get("mpi_call") or 0)
            before, looks = self._seen.get(rank, (0, 0))
            looks = looks + 1 if call == before else 1
            self._seen[rank] = call, looks if call else 0
            facts["waits"] = bool(call) and looks >= LOOKS


def _may_wait_in_mpi(facts: Mapping[str, Any], moving: bool) -> bool:
    """Whether the main thread is in a function in C that the program itself called: it may be one of an MPI, whatever
    the program calls it. A thread that sleeps, or waits for a process, is in none.
    """
    frames = _main_thread(facts)
    called = bool(frames) and not _is_library(frames[0][1])
    return called and (moving or facts.get("wchan") not in _OWN_WAITS)


def _described(facts: Mapping[str, Any], moving: bool) -> tuple[str, str, str]:
    frames, state = _telling(facts), facts.get("state", "")
    children = [_main_thread(child) for child in facts.get("children", ())]
    own = _users_frame(frames)
    if state in ("T", "t"):
        return "stopped", "is stopped (SIGSTOP)", _spot(own)
    if state in ("Z", "X"):
        return "stopped", "has ended", ""
    if not frames:
        wchan = str(facts.get("wchan", ""))
        waits = f"it waits in {wchan}" if wchan not in ("", "0") else "in the kernel: state D" if state == "D" else ""
        why = "; ".join(filter(None, (str(facts.get("error", "")), waits)))
        return "unknown", f"could not be read ({why})" if why else "could not be read", ""
    named = _collective(frames, moving) or _mpi_call(facts, frames)
    named = named or ("a call of its MPI" if facts.get("waits") is True else "")
    if named:
        return "collective", named, _spot(own)
    return "place", _place(frames, facts, children), ""


def _place(frames: Sequence[Frame], facts: Mapping[str, Any], children: Iterable[Sequence[Frame]]) -> str:
    own = _users_frame(frames)
    if any(name == "_shutdown" and file.endswith("threading.py") for name, file, _line in frames):
        return "waits for a thread"  # Python waits at its end for those that are no daemons
    files = [file for _name, file, _line in frames[: frames.index(own) if own else len(frames)]]
    place = next((words for part, words in _PLACES if any(part in file for file in files)), "")
    if not place and any(_reads_data(frame) for frame in _below_main(frames)):
        place = "data loading"
    where = f"{own[0]} at {_spot(own)}" if own else _spot(own)
    words = f"is in {place}: {where}" if place else f"is in {where}"
    if facts.get("wchan") == _ASLEEP:
        words += ", asleep"
    worker = next(filter(None, map(_users_frame, children)), None)
    if worker and place == "data loading":
        return f"{words}; its worker is in {worker[0]} at {_spot(worker)}"
    wait = next((waits for file in files for part, waits in _WAITS.items() if file.endswith(part)), "")
    return f"{words}, waiting for {wait}" if wait else words


def _below_main(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The user's frames inside the main function, whose name says nothing."""
    file = frames[-1][1]
    first = next((at for at, frame in enumerate(frames) if frame[1] == file and frame[0] in _MAIN), 0)
    return [frame for frame in frames[: first or 1] if not _is_library(frame[1])]


def _reads_data(frame: Frame) -> bool:
    name = frame[0].lower()
    steps = any(part in name for part in _STEP_PARTS)
    return not steps and any(word in name + os.path.basename(frame[1]).lower() for word in _DATA_WORDS)


def _main(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    threads = facts.get("threads") or ()
    return next((each for each in threads if each.get("name") == "MainThread"), threads[0] if threads else {})


def _main_thread(facts: Mapping[str, Any]) -> list[Frame]:
    return [(name, file, line) for name, file, line in _main(facts).get("frames", ())]


def _telling(facts: Mapping[str, Any]) -> list[Frame]:
    """Chooses the frames of a program below, where the rank itself is a launcher or a shell."""
    frames = _main_thread(facts)
    children = map(_main_thread, () if _users_frame(frames) else facts.get("children", ()))
    return next((found for found in children if _users_frame(found)), frames)


def _collective(frames: Sequence[Frame], moving: bool) -> str:
    """The outermost function of a communication package that names a collective, called by the user's own frame.

    A backward pass that uses the processor computes; only one that doesn't waits for its gradient all-reduce. py-spy
    names methods with their classes.
    """
    own = _users_frame(frames)
    named = ""
    for name, file, _line in frames[: frames.index(own) if own else len(frames)]:
        name = name.rpartition(".")[2]
        if name in _INSIDE and not (name in _COMPUTES and moving):
            named = _INSIDE[name]
        elif name in _COLLECTIVES and any(part in file for part in _COLLECTIVE_FILES):
            named = name
    return named


def _mpi_call(facts: Mapping[str, Any], frames: Sequence[Frame]) -> str:
    """The operation of mpi4py that the line of the innermost frame calls, if that frame is the user's (its function may
    have no name).
    """
    users = facts.get("mpi") is not False and not _is_library(frames[0][1])
    found = _MPI_CALL.search(str(facts.get("source", ""))) if users else None
    return found[1] if found else ""


def _users_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own code: outside installed packages, else in the main program's package."""
    own = [frame for frame in frames if not _is_library(frame[1])]
    if not own:
        package = _package(next((file for _name, file, _line in reversed(frames) if _package(file)), ""))
        own = [frame for frame in frames if package and _package(frame[1]) == package]
    return next((frame for frame in own if not frame[0].startswith("<") or frame[0] == "<module>"), None)


def _package(file: str) -> str:
    """The installed package of a file, unless it is PyTorch's, whose launcher runs other programs."""
    below = file.partition("-packages/")[2]
    name = below.partition("/")[0]
    return "" if name in ("torch", "") else name


def _is_library(file: str) -> bool:
    """Whether a file is of the standard library, an installed package, or the interpreter itself."""
    installed = "site-packages/" in file or "dist-packages/" in file or "lib/python3" in file
    return installed or file.startswith("<") or file in _WAITS or file.startswith(_LIBRARY)


def _spot(own: Frame | None) -> str:
    return f"{os.path.basename(own[1])}:{own[2]}" if own else "no frame of the program's own"


LOOKS = 3
"""So many looks, with the silence between them, find ranks in one call of a library before that is called a wait."""


def stands_still(positions: Sequence[Position], looks: int = 1) -> bool:
    """Whether no rank gets on: one at least doesn't move, and those that do are in a collective, where the ranks of an
    MPI wait busily.

    A call that has no name we know may be one of these, or compute. It is a wait where ``looks`` in a row found every
    rank at the same place, and one of them does nothing that another could wait for in good health: it sleeps, or
    waits outside an MPI.
    """
    moving = [one for one in positions if one.moving]
    if any(one.kind not in ("collective", "call") for one in moving) or len(moving) == len(positions):
        return False
    if all(one.kind == "collective" for one in moving):
        return True
    return looks >= LOOKS and any(one.kind in ("place", "stopped") for one in positions if not one.moving)


def got_on(position: Position) -> Position:
    """``position`` of a rank of a host that has printed something since the last look: a call there is another one."""
    return position._replace(kind="place", moving=True) if position.kind == "call" else position


def place_of(positions: Sequence[Position]) -> tuple[Position, ...]:
    """The places of all ranks, to be compared with those of the next look.

    On a loaded machine a rank that waits busily may not get the processor while it is looked at.
    """
    return tuple(sorted(one._replace(call=0, moving=False) for one in positions))


def busy_sentence(positions: Sequence[Position]) -> str:
    """Who gets on, for a job that is only quiet: ``rank 0 is in evaluate at train.py:17``."""
    moving = [one for one in positions if one.moving]
    first = next((one for one in moving if one.kind not in ("collective", "call")), moving[0])
    return _group_words(first, [first.rank], False)


def stall(positions: Sequence[Position]) -> Stall:
    """The sentence for a job that stands still: the largest group that waits in a collective first."""
    groups: dict[Position, list[int]] = {}
    for one in _calls_that_differ(positions):
        groups.setdefault(one._replace(rank=0, moving=False), []).append(one.rank)
    order = sorted(groups.items(), key=lambda group: (_WAITS_FIRST[group[0].kind], -len(group[1]), min(group[1])))
    if len(order) == 1 and order[0][0].kind == "collective":
        place, ranks = order[0]
        if len(ranks) == 1:
            return Stall(_group_words(place, ranks, False), None)
        words, of, world = place.words.partition(" for ")
        why = "the network between them, or a rank of another group"
        if of and words == "init_process_group":
            why = f"it waits for {world.partition(' ')[0]}, the job has {len(ranks)}"
        else:
            words = place.words
        return Stall(f"all {len(ranks)} ranks wait in {words} at the same line ({place.spot}): {why}", None)
    collectives = [place for place, _ranks in order if place.kind == "collective"]
    another = len({place.words for place in collectives}) == 1
    sentence = "; ".join(_group_words(place, ranks, another and at > 0) for at, (place, ranks) in enumerate(order))
    last = order[-1]
    stands_out = len(order) > 1 and (last[0].kind != "collective" or 2 * len(last[1]) < len(positions))
    return Stall(sentence, min(last[1]) if stands_out or len(positions) == 1 else None)


def _calls_that_differ(positions: Sequence[Position]) -> list[Position]:
    """``positions`` with the numbers of their calls where ranks at the same line are in different ones, and known."""
    calls: dict[tuple[str, str], set[int]] = {}
    for one in positions:
        calls.setdefault((one.words, one.spot), set()).add(one.call)
    apart = {place for place, found in calls.items() if len(found) > 1 and 0 not in found}
    return [one if (one.words, one.spot) in apart else one._replace(call=0) for one in positions]


def _group_words(place: Position, ranks: Sequence[int], another: bool) -> str:
    many = len(ranks) > 1
    if place.kind == "collective":
        verb = "wait" if many else "waits"
        call = f", call {place.call}" if place.call else ""
        return f"{numbers(ranks)} {verb} in {'another ' if another else ''}{place.words} ({place.spot}{call})"
    words = place.words
    if many:
        verb, _, rest = words.partition(" ")
        rest = rest.replace(" and is ", " and are ", 1).replace(" and waits ", " and wait ", 1)
        words = f"{_PLURAL.get(verb, verb)} {rest}"
    return f"{numbers(ranks)} {words}" + (f" at {place.spot}" if place.spot else "")


def raised_aside(tail: bytes) -> str:
    """The first line of an exception that ended a thread or a child shortly before a program fell silent; or empty."""
    from musterpoint.core.diagnosis import program_output  # 15 ms, for ranks that stand still

    return program_output.raised_aside(tail)
