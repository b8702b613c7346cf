"""Whose failure an error text tells of."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base.failure import Failure
from musterpoint.core.diagnosis.program_failures import kind_of
from musterpoint.core.diagnosis.program_output import find_error
from musterpoint.core.supervise.retry import why_not_again

from ..failures import ECC, ERROR, KILLED, LOST, OOM, PEER, STALLED, ours

TAILS = Path(__file__).parent / "tails"

# recorded tails
RECORDED = {
    "gloo_closed": "peer", "gloo_reset": "peer", "gloo_timeout": "peer", "store_gone": "peer", "nccl_remote": "peer",
    "nccl_watchdog": "peer", "nccl_monitor": "peer", "nccl_monitor_hang": "user",
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
    "torch.distributed.DistBackendError: Last error:\nMultiple Ranks are using the same GPU/Partition": "user",
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, unhandled cuda error\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\n"
    "Last error:\nCuda failure 101 'invalid device ordinal'": "user",
    "torch.distributed.DistBackendError: ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
    "Cuda failure 214 'uncorrectable ECC error encountered'": "infra",
    "torch.distributed.DistBackendError: ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
    "Cuda failure 999 'unknown error'": "infra",
    "torch.distributed.DistBackendError: ncclSystemError: System call (e.g. socket, malloc) or external library call "
    "failed or device error. \nLast error:\nError while creating shared memory segment /dev/shm/nccl-aBcDeF (size "
    "9637888), error: No space left on device (28)": "user",
    "torch.distributed.DistBackendError: ncclSystemError: System call (e.g. socket, malloc) or external library call "
    "failed or device error. \nLast error:\nError: failed to extend /dev/shm/nccl-aBcDeF to 33030532 bytes, error: No "
    "space left on device (28)": "user",
    "torch.distributed.DistBackendError: Attempt to perform collective on tensor not on device passed to "
    "init_process_group": "user",
    "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via "
    "c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: //0. This may "
    "indicate a possible application crash on rank 0 or a network set up issue.": "peer",
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
def test_a_child_that_was_killed(text: str) -> None:
    """As a rank that was killed; a pool says the same of one that crashed."""
    assert kind_of(text, 1, oom=True) == "oom"
    assert kind_of(text, 1) == ("user" if "abruptly" in text else "infra")


def crashed(signo: int) -> Failure:
    return ERROR._replace(code=128 + signo, signal=signo)


@pytest.mark.parametrize(
    ("failure", "infra", "user"),
    [
        (KILLED, True, True),
        *((crashed(signo), True, True) for signo in (6, 7, 11, 15)),
        *((crashed(signo), False, True) for signo in (2, 4, 8)),
        (PEER, True, True),
        (ECC, True, True),
        (LOST, True, True),
        (STALLED, True, True),
        (ERROR, False, True),
        (ERROR._replace(code=64), False, True),
        (OOM, False, True),
        (OOM._replace(cause="muster", code=74), False, True),
        *((ours(code), False, False) for code in (64, 70, 72)),
        *((ours(code)._replace(kind="user"), False, False) for code in (64, 71, 72)),
        *((ours(code), True, True) for code in (69, 71, 78)),  # what was missing may be there next time
        (ours(72)._replace(kind="peer"), True, True),  # mpirun ended by itself: a rank or a host is gone
        (ours(72)._replace(signal=9), True, True),
        (ours(72)._replace(signal=4), False, False),
    ],
)
def test_what_is_retriable(failure: Failure, infra: bool, user: bool) -> None:
    assert (not why_not_again(failure, "infra"), not why_not_again(failure, "user")) == (infra, user)
