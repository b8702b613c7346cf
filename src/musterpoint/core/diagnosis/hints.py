"""Hints: for errors whose remedy is known, one sentence that says what to type.

A hint stands in the failure reason behind who failed and before the frames: it is shorter than they are and helps more.
"""

from __future__ import annotations

import os
import re
from typing import Callable

from musterpoint.base import temporary
from musterpoint.base.records import NamedTuple
from musterpoint.core.code.program_files import ProgramFiles
from musterpoint.core.diagnosis.evidence import UNKNOWN, JobFacts
from musterpoint.core.launch.launchers import find_launcher
from musterpoint.core.launch.smdistributed import asking


class Case(NamedTuple):
    """What one hint is asked for.

    ``found``: the match in the error's text. ``tail``: the end of everything that the program printed.
    ``job``: what is known of the job. ``requirements``: the text of its requirements.txt. ``files``: the user's files.
    """

    found: re.Match[str]
    tail: str
    job: JobFacts
    requirements: str = ""
    files: ProgramFiles = ProgramFiles()


_NO_FILES = ProgramFiles()
_GLOBAL_RANK = re.compile(r"\b(?:RANK|rank|global_rank)\b|get_rank\(")
_LOCAL_RANK = re.compile(r"local_?rank", re.IGNORECASE)


class Hint(NamedTuple):
    """``pattern`` of the error's text, and the sentence, or what makes it (empty: no hint in this case)."""

    pattern: str
    sentence: str | Callable[[Case], str]

    def about(self, case: Case) -> str:
        return self.sentence if isinstance(self.sentence, str) else self.sentence(case)


def _channel(case: Case) -> str:
    name = case.found["channel"].lower()
    has = f"it has {', '.join(case.job.channels)}" if case.job.channels else "it has none"
    return case.job.missing_channel(name, has, case.job.local)


def _no_ranks(case: Case) -> str:
    if not case.job.launcher or not find_launcher(case.job.launcher).once:
        return ""
    return (
        f"launcher {case.job.launcher} starts the program without ranks, and sets no {case.found['variable']}: "
        "--launcher torchrun or --launcher ranks (MUSTER_LAUNCHER) starts it as ranks that have it"
    )


def _no_gpu(case: Case) -> str:
    if case.job.local:
        return "torch sees no GPU on this machine: muster local --cpu-fallback runs the script on the CPU"
    return (
        "torch sees no GPU on this host: give the job hosts with GPUs and a torch built for CUDA; muster local "
        "--cpu-fallback runs the script on a CPU"
    )


def _device(case: Case) -> str:
    """The number of a device that this host hasn't: the global rank was taken for it, or there are too few."""
    rank, local, index = case.job.rank, case.job.local_rank, case.found["index"]
    lines = [line for line in case.tail.splitlines() if re.search(r"device|cuda", line)]
    named = any(_GLOBAL_RANK.search(line) and not _LOCAL_RANK.search(line) for line in lines)
    if rank != local and (str(rank) == index if index else named):
        return (
            f"rank {rank} (local rank {local}) took its global rank for a device: devices are numbered from 0 on each "
            "host, so use LOCAL_RANK"
        )
    if index:  # as --cpu-fallback says it
        return f"local rank {local} asked for device {index}, and {case.found['count']} devices are numbered from 0"
    return f"this host has {case.job.ranks} ranks and fewer GPUs that torch sees: --slots N starts N ranks per host"


def _taken_port(case: Case) -> str:
    if re.search(r"torch/distributed/(?:run|launcher/api|elastic/\S+)\.py", case.tail) and case.job.ranks > 0:
        return (
            f"the program starts a torchrun of its own, and launcher {case.job.launcher} starts the program once per "
            "rank: --launcher script starts it once per host"
        )
    return (
        "another process on this host listens at that port: use the MASTER_PORT that the rank has, or --master-port 0 "
        "for a free one"
    )


def _no_processes(case: Case) -> str:
    if not re.search(r"elastic/agent/server/api\.py\", line \d+, in __post_init__", case.tail):
        return ""
    told = "torchrun was told to start 0 ranks: SM_NUM_GPUS counts this host's GPUs, and there are none"
    if case.job.local:
        return f"{told}. muster local --env SM_NUM_GPUS=N says another number, and --cpu-fallback one for each slot"
    return f"{told}. SM_NUM_GPUS=N in the job's environment (docker run -e, the estimator's environment) says another"


def _no_batch(case: Case) -> str:
    if not any("SM_NUM_GPUS" in text for text in case.files.programs()):
        return ""
    return (
        "SM_NUM_GPUS counts this host's GPUs, and there are none, which leaves no batch where it is multiplied: "
        "max(1, SM_NUM_GPUS) in the script, or SM_NUM_GPUS=1 in the job's environment"
    )


def _missing_module(case: Case) -> str:
    name = case.found["module"].partition(".")[0]
    wanted = {name, _PACKAGES.get(name, name)}
    listed = {_normal(line) for line in case.requirements.splitlines()}
    if not listed & {_normal(package) for package in wanted}:
        return f"the program's Python is {case.job.python} (--python names another one)" if case.job.python else ""
    return (
        f"requirements.txt names it, and it isn't installed: --installer pip (MUSTER_INSTALLER=pip) installs "
        f"{'what it lists' if case.job.local else 'that file'} before the program starts"
    )


def _normal(line: str) -> str:
    """The name of a package in a line of requirements.txt (PEP 503); empty for comments and options."""
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line)
    return re.sub(r"[-_.]+", "-", found[1]).lower() if found else ""


_PACKAGES = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "google": "protobuf",
    "git": "gitpython",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
}
"""Packages whose modules have other names."""


_NAMES = re.compile(r"[\w./-]*\w")
_SAID_LAST = 2000
"""Characters at the end of an output in which a file is named that it ended with."""


def _line_ends(case: Case) -> str:
    """The script that has Windows line ends: the program, what it calls, or what is named in the error."""
    read, program = case.files.read, case.job.program
    calls = (read(program) or "") if program else ""
    named = [name for text in (case.found.string, case.tail[-_SAID_LAST:], calls) for name in _NAMES.findall(text)]
    for file in dict.fromkeys((program, *named)):
        text = (read(file) or "") if file else ""
        first, _, _rest = text.partition("\n")
        if "python" in first:  # Python itself takes any line ends: they matter to who executes the file
            is_script = os.path.basename(file) in case.found.string or "python" in case.found[0]
        else:
            is_script = first.startswith("#!") or file.endswith(".sh")
        if is_script and "\r\n" in text:
            for folder in case.files.directories:
                file = file.removeprefix(folder + "/")
            return f"{file} has Windows line ends: sed -i 's/\\r$//' {file}"
    return ""


def _smdistributed(case: Case) -> str:
    library = "modelparallel" if "smdistributed.modelparallel" in case.found[0] + case.tail else "dataparallel"
    return f"musterpoint brings it where the job asks for it: {asking(library, case.job.local)}"


def _debugger(case: Case) -> str:
    if case.job.debugged:
        return ""
    if case.job.outside:
        return "a program outside the group has no terminal, so breakpoint() reads the end of its input"
    return (
        "a rank has no terminal, so breakpoint() reads the end of its input: muster local --debug "
        f"{case.job.rank or 0} PROGRAM gives this rank yours"
    )


def _input(case: Case) -> str:
    if case.job.debugged:
        return ""
    if case.job.outside:
        return "a program outside the group has no terminal: give it its answers as arguments"
    alone = case.job.local and find_launcher(case.job.launcher).once
    piped = ", pipe them into muster launch PROGRAM" if alone else ""
    return (
        f"a rank has no terminal, so input() finds nothing to read: give the program its answers as arguments{piped}, "
        f"or muster local --debug {case.job.rank or 0} PROGRAM gives this rank your terminal"
    )


HINTS: tuple[Hint, ...] = (
    Hint(
        r"(?:python[\d.]*)?(?:\\r|\r)"
        r"|(?:[Nn]ot found|No such file|[a-z] option\b|unexpected|can't open|cannot execute)",
        _line_ends,
    ),
    Hint(r"\bKeyError: '?SM_CHANNEL_(?P<channel>\w+)", _channel),
    Hint(r"\bSM_CHANNEL_(?P<channel>\w+): (?:unbound variable|parameter not set)", _channel),
    Hint(
        r"(?:\bKeyError: '|\benvironment variable |^.*: (?:line )?\d+: )"
        r"(?P<variable>RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)"
        r"(?:'| expected, but not set|: unbound variable|: parameter not set)",
        _no_ranks,
    ),
    Hint(r"^(?:bdb\.)?BdbQuit\b", _debugger),
    Hint(r"^EOFError: EOF when reading a line", _input),
    Hint(
        r"_cuda_(?:set|get)Device|_cuda_init|Torch not compiled with CUDA|No CUDA GPUs are available"
        r"|Found no NVIDIA driver|ProcessGroupNCCL is only supported with GPUs|doesn't have NCCL built in"
        r"|torch\.cuda\.is_available\(\) is False|Cannot access accelerator device when none is available",
        _no_gpu,
    ),
    Hint(r"invalid device ordinal(?: (?P<index>\d+): this host has (?P<count>\d+))?", _device),
    Hint(r"EADDRINUSE|[Aa]ddress already in use", _taken_port),
    Hint(r"^AssertionError$", _no_processes),
    Hint(
        r"No usable temporary directory found|orte_session_dir failed",
        f"/tmp can't be written: {temporary.WHAT_TO_DO} be written",
    ),
    Hint(r"\bNo module named '?smdistributed(?:\.\w+)*", _smdistributed),
    Hint(
        r"doesn't have MPI built in",
        "PyPI's torch has no back end mpi: init_process_group('gloo'), or 'nccl' on GPUs, works under every launcher, "
        "mpi included",
    ),
    Hint(
        r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY",
        "try a smaller batch per rank, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where much is reserved but "
        "unallocated",
    ),
    Hint(
        r"Attempt to convert a value \(PerReplica:",
        "Keras 3's fit does not work with MultiWorkerMirroredStrategy; install tf-keras (pip install --no-deps "
        "tf-keras) and set TF_USE_LEGACY_KERAS=1, or write the training loop yourself",
    ),
    Hint(
        r"module 'tensorflow[\w.]*' has no attribute 'estimator'|No module named 'tensorflow[\w.]*\.estimator",
        "TensorFlow 2.16 and later have no tf.estimator; use an earlier one",
    ),
    Hint(
        r"must end in `?\.(?:weights\.h5|keras)",
        "Keras 3 wants other names of files than Keras 2 did: give the file that end, or install tf-keras (pip install "
        "--no-deps tf-keras) and set TF_USE_LEGACY_KERAS=1",
    ),
    Hint(r"Batch size must be greater than zero", _no_batch),
    Hint(
        r"An attempt has been made to start a new process before the",
        "the program starts processes by spawn, which import it again: put all that isn't to run there under if "
        '__name__ == "__main__":',
    ),
    Hint(r"\bNo module named '?(?P<module>[\w.]+)", _missing_module),
    Hint(
        r"_temp\S*; No such file or directory[\s\S]*/job:ps/",
        "each parameter server writes its own part of a checkpoint; save where all hosts share a disk, or copy the "
        "variables to the chief first",
    ),
)
"""The first that matches the error's text, and has something to say, is used."""

ENDINGS: tuple[Hint, ...] = (
    Hint(
        # with faulthandler's dump: the thread shown last is the main one, and has nothing left to run
        r"terminate called without an active exception\s*"
        r"(?:$|Fatal Python error: Aborted\b[\s\S]*<no Python frame>(?!\s*(?:Current t|T)hread 0x))",
        "the program was through; torch's gloo threads can abort Python's exit: atexit.register(time.sleep, 0.1) at "
        "its beginning gives them time",
    ),
)
"""The same for the end of everything that a program printed before it ended by SIGABRT."""


def hint_for(
    text: str,
    tail: str = "",
    aborted: bool = False,
    job: JobFacts = UNKNOWN,
    requirements: str = "",
    files: ProgramFiles = _NO_FILES,
) -> str:
    """The hint for an error ``text`` as a line of the failure reason; empty where there is none.

    ``tail`` is the end of what the program printed; ``aborted``: it ended by SIGABRT, with its error in ``tail`` alone.
    """
    for hints, where in ((HINTS, text), (ENDINGS, tail if aborted else "")):
        for hint in hints:
            found = re.search(hint.pattern, where)
            said = hint.about(Case(found, tail, job, requirements, files)) if found else ""
            if said:
                return f"hint: {said}"
    return ""
