"""Whose failure an error text tells of."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.diagnosis.classify import ENDINGS, HINTS, hint_for, kind_of
from musterpoint.diagnosis.program_output import find_error
from musterpoint.failure import ERROR_SHARE, MOST_REASON

TAILS = Path(__file__).parent / "tails"

# recorded tails
RECORDED = {
    "gloo_closed": "peer", "gloo_reset": "peer", "gloo_timeout": "peer", "store_gone": "peer", "nccl_remote": "peer",
    "master_gone": "peer", "connreset": "user", "addrinuse": "user", "cuda_oom": "oom", "cpuoom": "oom",
    "horovod_gloo_peer": "peer", "tf_socket_closed": "peer", "tf_graph_error": "user", "tf_keras3_fit": "user",
    "jax_peer": "peer", "jax_abort": "peer", "jax_shutdown": "peer", "xgboost_peer": "peer",
    "mpich_finalize": "peer", "mpich_raise": "user",
    "segfault": "user", "thread": "user", "multi": "user", "module": "user", "torchrun_exit": "user",
}  # fmt: skip

TEXTS = {
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB": "oom",
    "torch.cuda.OutOfMemoryError: CUDA out of memory.": "oom",
    "MemoryError": "oom",
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB: MemoryError": "oom",
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[8,9]": "oom",
    "OSError: [Errno 12] Cannot allocate memory": "oom",
    "torch.distributed.DistBackendError: NCCL error: ncclUnhandledCudaError: Cuda failure 'out of memory'": "oom",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error": "peer",
    "torch.distributed.DistBackendError: ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0": "user",
    "RuntimeError: NCCL communicator was aborted on rank 3.": "peer",
    "RuntimeError: [3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)": "peer",
    "RuntimeError: Socket Timeout": "peer",
    "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /worker/0": "peer",
    "RuntimeError: Broken pipe\nException raised from sendBytes at torch/csrc/distributed/c10d/Utils.hpp": "peer",
    "RuntimeError: Rank 1 failed to pass monitoredBarrier in 3000 ms": "peer",
    "tensorflow.python.framework.errors_impl.UnavailableError: /job:worker/replica:0/task:1: Socket closed": "peer",
    "tensorflow.python.framework.errors_impl.AbortedError: Collective ops is aborted by: peer": "peer",
    "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.": "peer",
    "ORTE has lost communication with a remote daemon.": "peer",
    "ray.exceptions.NodeDiedError: Task failed because the node it was running on is dead or unavailable.": "peer",
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "The actor died because its node has died. Node Id: 0a1b": "peer",
    "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task": "user",
    "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.": "user",
    "ray.exceptions.RpcError: Failed to connect to GCS within 60 seconds": "peer",
    "xgboost.core.XGBoostError: [09:13:30] /__w/xgboost/xgboost/src/collective/result.cc:83: [data.cc:822]:": "peer",
    "xgboost.core.XGBoostError: [09:13:30] /__w/xgboost/xgboost/src/data/data.cc:556: Check failed: valid": "user",
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes": "oom",
    "ConnectionResetError: [Errno 104] Connection reset by peer": "user",
    "BrokenPipeError: [Errno 32] Broken pipe": "user",
    "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed'))": "user",
    "botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: https://s3/": "user",
    "TimeoutError: [Errno 110] Connection timed out": "user",
    "urllib3.exceptions.ReadTimeoutError: Read timed out.": "user",
    "FileNotFoundError: [Errno 2] No such file or directory: 'peer.txt'": "user",
    "ValueError: too many workers": "user",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": "infra",
    "OSError: [Errno 5] Input/output error: '/fsx/data'": "infra",
    "OSError: [Errno 28] No space left on device": "user",
    "": "user",
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_tails(name: str) -> None:
    error = find_error((TAILS / f"{name}.txt").read_bytes())
    assert error is not None
    assert kind_of(error.text, 1) == RECORDED[name]


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    assert kind_of(text, 1) == TEXTS[text]


@pytest.mark.parametrize(
    ("status", "oom", "kind"),
    [
        (-9, True, "oom"),
        (137, True, "oom"),
        (-9, False, "infra"),
        (1, True, "user"),
        (-11, False, "user"),
        (None, False, "infra"),
        (7, False, "user"),
    ],
)
def test_ends_without_words(status: int | None, oom: bool, kind: str) -> None:
    assert kind_of("", status, oom) == kind


CHILDREN = [
    "RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.",
    "subprocess.CalledProcessError: Command '['./tool']' died with <Signals.SIGKILL: 9>.",
    "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
    "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the "
    "future was running or pending.",
    "RuntimeError: worker ended with exit code -9",
]


@pytest.mark.parametrize("text", CHILDREN)
def test_a_child_that_the_oom_killer_took(text: str) -> None:
    assert kind_of(text, 1, oom=True) == "oom"
    assert kind_of(text, 1) == "user"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("ValueError: Attempt to convert a value (PerReplica:{\n  0: <tf.Tensor: shape=(32, 64)", "tf-keras"),
        ("AttributeError: module 'tensorflow' has no attribute 'estimator'", "tf.estimator"),
        ("AttributeError: module 'tensorflow._api.v2.compat.v1' has no attribute 'estimator'", "tf.estimator"),
        ("ModuleNotFoundError: No module named 'tensorflow.estimator'", "tf.estimator"),
        (
            "NotFoundError: (0) NOT_FOUND:   /opt/ml/model/1/variables/variables_temp; No such file or directory\n"
            "Additional GRPC error information from remote target /job:ps/replica:0/task:0",
            "share a disk",
        ),
    ],
)
def test_known_errors(text: str, word: str) -> None:
    assert hint_for(text).startswith("hint: ")
    assert word in hint_for(text)


@pytest.mark.parametrize(
    "text", ["", "ValueError: PerReplica", "AttributeError: module 'sklearn' has no attribute 'x'"]
)
def test_other_errors_have_none(text: str) -> None:
    assert hint_for(text) == ""


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
    assert ("gloo" in hint_for(ABORTED, tail)) == expected


def test_every_hint_fits_beside_a_long_error() -> None:
    assert all(len(hint.encode()) < (MOST_REASON - ERROR_SHARE) / 2 for _pattern, hint in (*HINTS, *ENDINGS))
