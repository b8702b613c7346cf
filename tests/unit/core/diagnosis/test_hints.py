"""Hints: each known error, provoked for real where this machine can, gets a sentence that says what to type."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.failure import ERROR_SHARE, MOST_REASON
from musterpoint.core.code.program_files import CodeDirectory
from musterpoint.core.diagnosis.evidence import DiagnosisContext, Evidence, JobFacts
from musterpoint.core.diagnosis.hints import ENDINGS, HINTS, Case, hint_for
from musterpoint.core.diagnosis.program_failures import failure_of_rank
from musterpoint.core.job.platforms import load

pytestmark = pytest.mark.xdist_group("hints")

SAGEMAKER = load("sagemaker").missing_channel
LOCAL = JobFacts(SAGEMAKER, local=True, channels=("training", "test"), launcher="torchrun", ranks=2)
PLATFORM = JobFacts(SAGEMAKER)
EACH = """
import json, linecache, sys, traceback
tails = {}
for statement in json.load(sys.stdin):
    linecache.cache["train.py"] = (1, None, [statement], "train.py")
    try:
        exec(compile(statement, "train.py", "exec"))
    except BaseException:
        tails[statement] = traceback.format_exc()
json.dump(tails, open(sys.argv[1], "w"))
"""
WORLD_OF_ONE = (
    "import torch.distributed as d; d.init_process_group({!r}, init_method='tcp://127.0.0.1:0', rank=0, world_size=1)"
)
PROVOKED = [
    # statement, the job, words of the hint
    ("import os; os.environ['SM_CHANNEL_TRAIN']", LOCAL, "channel train (it has training, test): muster local"),
    ("import os; os.environ['SM_CHANNEL_TRAIN']", PLATFORM, "(it has none): fit({'train': ...}) gives it one"),
    ("import os; os.environ['SM_CHANNEL_TRAIN']", JobFacts(), "set SM_CHANNEL_TRAIN to a directory"),
    ("import sys; sys.stdin.read(); breakpoint()", LOCAL, "muster local --debug 1 PROGRAM"),
    ("input()", LOCAL, "input() finds nothing to read: give the program its answers as arguments, or muster local"),
    ("input(1)", JobFacts(local=True), "as arguments, pipe them into muster launch PROGRAM, or muster local"),
    ("import os; os.environ['LOCAL_RANK']", PLATFORM, "sets no LOCAL_RANK: --launcher torchrun or --launcher ranks"),
    ("import os; os.environ['LOCAL_RANK']", LOCAL, ""),
    ("import torch.distributed as d; d.init_process_group('gloo')", JobFacts(launcher="tensorflow"),
     "launcher tensorflow starts the program without ranks, and sets no RANK"),
    ("import torch; torch.cuda.set_device(0)", LOCAL, "muster local --cpu-fallback runs the script on the CPU"),
    ("import torch; torch.nn.Linear(1, 1).to('cuda')", LOCAL, "--cpu-fallback"),
    ("import torch; torch.zeros(1).cuda()", PLATFORM, "give the job hosts with GPUs"),
    (WORLD_OF_ONE.format("nccl"), LOCAL, "--cpu-fallback"),
    (WORLD_OF_ONE.format("mpi"), LOCAL, "init_process_group('gloo')"),
    ("import smdistributed.dataparallel.torch.torch_smddp", LOCAL, '{"smdistributed": {"dataparallel": {"enabled"'),
    (
        "import smdistributed.modelparallel.torch as smp", LOCAL,
        """--distribution '{"smdistributed": {"modelparallel": {"enabled": true}}, "mpi": {"enabled": true}}'""",
    ),
    ("import smdistributed.dataparallel.torch", PLATFORM, 'distribution={"smdistributed": {"dataparallel": {"enabled"'),
    ("import a_package.models", LOCAL, "requirements.txt names it, and it isn't installed: --installer pip"),
    ("import another_package", LOCAL, ""),
    ("import socket as s; a = s.create_server(('127.0.0.1', 0)); s.create_server(a.getsockname())", LOCAL,
     "--master-port 0"),
]  # fmt: skip


@pytest.fixture(scope="module")
def tails(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each statement of the chosen tests printed: one process, since it may import torch."""
    into = tmp_path_factory.mktemp("hints") / "tails.json"
    calls = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    chosen = {call.params["statement"] for call in calls if "statement" in call.params}
    words = json.dumps([statement for statement, _job, _hint in PROVOKED if statement in chosen])
    subprocess.run([sys.executable, "-c", EACH, str(into)], input=words, text=True, check=True, capture_output=True)
    found: dict[str, str] = json.loads(into.read_text())
    return found


@pytest.mark.parametrize(
    ("statement", "job", "words"),
    [pytest.param(*row, marks=[pytest.mark.torch] if row[0].startswith("import torch") else []) for row in PROVOKED],
)
def test_a_provoked_error_says_what_to_type(
    statement: str, job: JobFacts, words: str, tails: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("# ours\nnumpy>=1\nA.Package[extra]==2.0 ; python_version > '3'\n")
    context = DiagnosisContext("algo-1", files=CodeDirectory(str(tmp_path)), job=job)
    failure = failure_of_rank(Evidence(1, 1, 1, 0.0, tail=tails[statement].encode()), context)
    hints = [line for line in failure.reason.split("\n") if line.startswith("hint: ")]
    assert len(hints) == bool(words)
    assert words in "".join(hints)


RECORDED = [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", LOCAL, "smaller batch per rank"),
    ("train.sh: line 4: SM_CHANNEL_TRAIN: unbound variable", LOCAL, "no input channel train"),
    ("train.sh: 4: SM_CHANNEL_TRAIN: parameter not set", LOCAL, "no input channel train"),
    ("train.sh: line 4: RANK: unbound variable", PLATFORM, "--launcher torchrun"),
    ("torch.AcceleratorError: CUDA error: invalid device ordinal", LOCAL, "2 ranks and fewer GPUs"),
    ("RuntimeError: Found no NVIDIA driver on your system.", LOCAL, "--cpu-fallback"),
    ("AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'", LOCAL, "--cpu-fallback"),
    ("ModuleNotFoundError: No module named 'smdistributed'", LOCAL, "dataparallel"),
    ("ValueError: Attempt to convert a value (PerReplica:{\n  0: <tf.Tensor: shape=(32, 64)", LOCAL, "tf-keras"),
    ("AttributeError: module 'tensorflow' has no attribute 'estimator'", LOCAL, "tf.estimator"),
    ("AttributeError: module 'tensorflow._api.v2.compat.v1' has no attribute 'estimator'", LOCAL, "tf.estimator"),
    ("ModuleNotFoundError: No module named 'tensorflow.estimator'", LOCAL, "tf.estimator"),
    (
        "ValueError: When using `save_weights_only=True` in `ModelCheckpoint`, the filepath provided must end in "
        "`.weights.h5` (Keras weights format). Received: filepath=/opt/ml/model/ckpt",
        PLATFORM,
        "tf-keras",
    ),
    (
        "RuntimeError: \n        An attempt has been made to start a new process before the\n        current process",
        LOCAL,
        'under if __name__ == "__main__":',
    ),
    (
        "NotFoundError: (0) NOT_FOUND:   /opt/ml/model/1/variables/variables_temp; No such file or directory\n"
        "Additional GRPC error information from remote target /job:ps/replica:0/task:0",
        LOCAL,
        "share a disk",
    ),
]


@pytest.mark.parametrize(("text", "job", "word"), RECORDED)
def test_known_errors(text: str, job: JobFacts, word: str) -> None:
    assert hint_for(text, job=job).startswith("hint: ")
    assert word in hint_for(text, job=job)


@pytest.mark.parametrize("reads", [True, False])
def test_no_gpu_leaves_no_batch(reads: bool, tmp_path: Path) -> None:
    name = "SM_NUM_GPUS" if reads else "BATCH"
    (tmp_path / "train.py").write_text(f"import os\nbatch = 64 * int(os.environ['{name}'])\n")
    said = hint_for("ValueError: Batch size must be greater than zero", files=CodeDirectory(str(tmp_path)))
    assert ("max(1, SM_NUM_GPUS)" in said) == reads


@pytest.mark.parametrize(("job", "word"), [(LOCAL, "muster local --env SM_NUM_GPUS=N"), (PLATFORM, "docker run -e")])
def test_no_rank_is_told_of_where_it_was_started(job: JobFacts, word: str) -> None:
    tail = '  File "torch/distributed/elastic/agent/server/api.py", line 109, in __post_init__\nAssertionError'
    said = hint_for("AssertionError", tail, job=job)
    assert word in said and (job is LOCAL or "muster local" not in said)


@pytest.mark.parametrize(
    ("text", "program", "file"),
    [
        ("r.sh: line 3: $'\\r': command not found", "r.sh", "r.sh"),
        ("python3: can't open file '/opt/ml/code/train.py\\r': [Errno 2]", "r.sh", "r.sh"),
        ("r.sh: line 9: syntax error: unexpected end of file", "r.sh", "r.sh"),
        ("/usr/bin/env: ‘python3\\r’: No such file or directory", "calls.sh", "./inner"),
        ("FileNotFoundError: [Errno 2] No such file or directory: './r.sh'", "t.py", "./r.sh"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", "t.py", ""),
        ("fine.sh: line 2: /opt/app/tool\\r: No such file or directory", "fine.sh", ""),
        ("ValueError: bad shard 5", "r.sh", ""),
    ],
)
def test_windows_line_ends_are_those_of_the_file(text: str, program: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "r.sh").write_bytes(b"#!/bin/sh\r\nset -e\r\n")
    (tmp_path / "inner").write_bytes(b"#!/usr/bin/env python3\r\nprint(1)\r\n")
    (tmp_path / "t.py").write_bytes(b"#!/usr/bin/env python3\r\nopen('data.csv')\r\n")
    (tmp_path / "calls.sh").write_text("#!/bin/sh\n./inner\n")
    (tmp_path / "fine.sh").write_text("#!/bin/sh\nP=$(printf '/opt/app/tool\\r')\n\"$P\" --x\n")
    said = hint_for(text, text, job=JobFacts(program=program), files=CodeDirectory(str(tmp_path)))
    assert (f"{file} has Windows line ends: sed -i" in said) if file else "Windows" not in said


@pytest.mark.parametrize(
    ("more", "line", "word"),
    [
        ("", '    torch.cuda.set_device(int(os.environ["RANK"]))', "use LOCAL_RANK"),
        ("", "    device = torch.device('cuda', dist.get_rank())", "rank 3 (local rank 1) took its global rank"),
        ("", "    torch.cuda.set_device(local_rank)", "2 ranks and fewer GPUs"),
        (" 3: this host has 2 slots", "", "use LOCAL_RANK"),
        (" 2: this host has 2 slots", "    set_device(rank)", "local rank 1 asked for device 2, and 2 devices are"),
    ],
)
def test_a_global_rank_is_no_device(more: str, line: str, word: str) -> None:
    job = LOCAL._replace(rank=3, local_rank=1)
    assert word in hint_for(f"torch.AcceleratorError: CUDA error: invalid device ordinal{more}", line, job=job)
    torchrun = '  File "torch/distributed/elastic/agent/server/api.py", line 109, in __post_init__'
    assert "SM_NUM_GPUS=N" in hint_for("AssertionError", torchrun) and not hint_for("AssertionError", line)


@pytest.mark.parametrize(
    "text",
    ["", "ValueError: PerReplica", "AttributeError: module 'sklearn' has no attribute 'x'", "KeyError: 'SM_CHANNELS'"],
)
def test_other_errors_have_none(text: str) -> None:
    assert hint_for(text) == ""


@pytest.mark.torch
def test_a_torchrun_of_the_programs_own_is_told_from_another_port() -> None:
    """A real one, whose port another rank's torchrun has already."""
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        port = str(taken.getsockname()[1])
        words = ("torch.distributed.run", "--nproc-per-node", "1", "--master-port", port, "train.py")
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, check=False)
    end = Evidence(1, 1, done.returncode, 0.0, tail=done.stderr)
    failure = failure_of_rank(end, DiagnosisContext("algo-1", job=LOCAL))
    error, _who, hint, *_frames = failure.reason.split("\n")
    assert "EADDRINUSE" in error
    assert hint.startswith("hint: the program starts a torchrun of its own, and launcher torchrun starts ")
    assert hint.endswith("--launcher script starts it once per host")


ABORTED = "Fatal Python error: Aborted"
TERMINATED = "terminate called without an active exception\n"
THREAD = "Thread 0x00007fcbc344cb80 (most recent call first):\n"


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (TERMINATED, True),
        (f"epoch 3\n{TERMINATED}{ABORTED}\n\n{THREAD}  <no Python frame>\n", True),
        (f"{TERMINATED}{ABORTED}\n\n{THREAD}  Garbage-collecting\n  <no Python frame>\n", True),
        (f"{TERMINATED}{ABORTED}\n\n{THREAD}  <no Python frame>\n\nExtension modules: a, b.c (total: 2)\n", True),
        (f"{TERMINATED}{ABORTED}\n\n{THREAD}  <no Python frame>\nE1122 02:03:04 failed (exitcode: -6)\n", True),
        (f'{TERMINATED}{ABORTED}\n\n{THREAD}  File "w.py", line 3 in f\n\n{THREAD}  <no Python frame>\n', True),
        (f'{TERMINATED}{ABORTED}\n\n{THREAD}  <no Python frame>\n\n{THREAD}  File "train.py", line 3 in f\n', False),
        (f"{ABORTED}\n\n{THREAD}  <no Python frame>\n", False),
        ("terminate called after throwing an instance of 'std::runtime_error'\n  what():  x\n", False),
        (f"{TERMINATED}and then it went on\n", False),
    ],
)
def test_an_abort_after_the_programs_end(tail: str, expected: bool) -> None:
    assert ("gloo" in hint_for(ABORTED, tail, aborted=True)) == expected


def test_a_hint_stands_whole_beside_the_longest_error() -> None:
    """It has its place before the frames, which are cut instead."""
    error = "RuntimeError: CUDA out of memory " + "x" * 2000
    frames = "".join(f'  File "train.py", line {line}, in step\n    loss.backward({"y" * 80})\n' for line in range(9))
    tail = f"Traceback (most recent call last):\n{frames}{error}\n".encode()
    failure = failure_of_rank(Evidence(1, 1, 1, 0.0, tail=tail), DiagnosisContext("algo-1"))
    assert len(failure.reason.encode()) <= MOST_REASON
    _error, who, hint, *rest = failure.reason.split("\n")
    assert who == "rank 1 (local rank 1) on algo-1, exit code 1"
    assert hint == hint_for(error)
    assert rest


@pytest.mark.parametrize("number", range(len((*HINTS, *ENDINGS))))
def test_no_hint_is_too_long(number: int) -> None:
    hint = (*HINTS, *ENDINGS)[number]
    long = JobFacts(SAGEMAKER, True, ("training", "validation", "test"), "parameter-server", 16, 1023)
    sample = "SM_CHANNEL_VALIDATION No module named smdistributed.modelparallel.torch"
    found = re.search(
        r"_(?P<channel>\w+) (?P<module>(?P<variable>(?P<index>(?P<count>No)))) "
        r"module named smdistributed\.modelparallel",
        sample,
    )
    assert found is not None
    said = hint.about(Case(found, "torch/distributed/run.py", long, "No"))
    assert len(said.encode()) < (MOST_REASON - ERROR_SHARE) * 0.6
