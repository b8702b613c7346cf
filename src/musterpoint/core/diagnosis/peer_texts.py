"""What communication libraries print when another rank or its host went away, and where each text comes from.

Such an error is a symptom: the failure of the rank that went away is the cause, and comes first in the reports.
DeepSpeed, Lightning, accelerate and Hugging Face's Trainer have no texts of their own: their ranks raise torch's.
"""

from __future__ import annotations

import re

from musterpoint.base.records import NamedTuple


class PeerText(NamedTuple):
    """``library`` prints it; ``pattern`` finds it in an error's text (``.`` matches line ends, too); ``source`` is the
    repository and file, or ``seen`` where a rank was killed to see it; ``example`` is one as printed.
    """

    library: str
    pattern: str
    source: str
    example: str


_C10D = "pytorch/pytorch: torch/csrc/distributed/c10d"
TEXTS: tuple[PeerText, ...] = (
    # -- torch over Gloo, and its store --
    PeerText(
        "Gloo",
        r"gloo/transport/.*(?:[Cc]onnection|[Tt]imed out|Read error|Write error|[Bb]roken pipe|[Ss]ocket)",
        "pytorch/gloo: gloo/transport/tcp/pair.cc; seen",
        "RuntimeError: [/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:7",
    ),
    PeerText(
        "Gloo",
        r"\bConnection closed by peer \[",
        "pytorch/gloo: gloo/transport/tcp/pair.cc",
        "RuntimeError: Connection closed by peer [192.168.0.5]:6575",
    ),
    PeerText(
        "Gloo",
        r"Application timeout caused pair closure|\bTimed out waiting \d+ms for (?:recv|send) operation to complete",
        "pytorch/gloo: gloo/transport/tcp/unbound_buffer.cc",
        "RuntimeError: Application timeout caused pair closure",
    ),
    PeerText(
        "torch",
        r"\bDist(?:Backend|Network|Store)Error\b",
        f"{_C10D}/exception.h",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
    ),
    PeerText("torch", r"[Ss]ocket [Tt]imeout", f"{_C10D}/socket.cpp; seen", "RuntimeError: Socket Timeout"),
    PeerText(
        "torch",
        r"recvValueWithTimeout failed|sendBytes failed|Failed to recv, got 0 bytes",
        f"{_C10D}/Utils.hpp; seen",
        "RuntimeError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown?",
    ),
    PeerText(
        "torch",
        r"monitoredBarrier",
        f"{_C10D}/ProcessGroupGloo.cpp",
        "RuntimeError: Rank 1 failed to pass monitoredBarrier in 3000 ms",
    ),
    PeerText(
        "torch",
        r"(?:TCPStore|c10d|ProcessGroup\w+|store->get).*"
        r"(?:[Cc]onnection (?:reset|closed|refused)|[Bb]roken pipe|time[d ]?.?out)",
        f"{_C10D}/TCPStore.cpp",
        "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId via c10d key '0', but got "
        "Connection reset by peer",
    ),
    PeerText(
        "torch",
        r"[Bb]roken pipe.*(?:TCPStore|c10d)"
        r"|torch\.distributed.*(?:[Cc]onnection (?:reset|closed|refused)|[Bb]roken pipe)",
        f"{_C10D}/Utils.hpp",
        "RuntimeError: Broken pipe\nException raised from sendBytes at ../torch/csrc/distributed/c10d/Utils.hpp",
    ),
    PeerText(
        "torchrun",
        r"\bRendezvous(?:Connection|Closed|Timeout|GracefulExit|State)Error\b|\bSignalException\b",
        "pytorch/pytorch: torch/distributed/elastic/rendezvous/api.py, "
        "torch/distributed/elastic/multiprocessing/api.py",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store failed.",
    ),
    # -- NCCL --
    PeerText(
        "NCCL",
        r"ncclRemoteError|remote process exited|nccl\w*Error.*peer",
        "NVIDIA/nccl: src/init.cc (ncclGetErrorString)",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
    ),
    PeerText(
        "NCCL",
        r"ncclSystemError",
        f"{_C10D}/NCCLUtils.cpp",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
    ),
    PeerText(
        "NCCL",
        r"Connection closed by remote peer|socketProgress\w*: .*(?:[Cc]onnection reset|[Bb]roken pipe|timed out)"
        r"|Got completion from peer .* with (?:error|status)",
        "NVIDIA/nccl: src/misc/socket.cc, src/transport/net_ib.cc",
        "Last error:\nNET/IB : Got completion from peer 10.5.0.34<33956> with error 5, opcode 0, len 1, vendor err 244",
    ),
    PeerText(
        "NCCL",
        r"NCCL communicator was aborted",
        f"{_C10D}/NCCLUtils.cpp",
        "RuntimeError: NCCL communicator was aborted on rank 3.",
    ),
    PeerText(
        "NCCL",
        r"NCCL (?:timeout|.*[Cc]onnection (?:reset|closed|refused))|Watchdog caught collective operation timeout"
        r"|attempting to dump debug info, due to collective timeout",
        f"{_C10D}/ProcessGroupNCCL.cpp",
        "RuntimeError: [3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)",
    ),
    # -- TensorFlow --
    PeerText(
        "TensorFlow",
        r"\b(?:Unavailable|Aborted|Cancelled|DeadlineExceeded)Error\b.*"
        r"(?:/job:|worker|[Cc]ollective|[Ss]ocket closed|connect)",
        "tensorflow/tensorflow: tensorflow/python/framework/errors_impl.py; seen",
        "tensorflow.python.framework.errors_impl.UnavailableError: /job:worker/replica:0/task:1: Socket closed",
    ),
    PeerText(
        "TensorFlow",
        r"Collective ops is aborted by",
        "tensorflow/tensorflow: tensorflow/core/common_runtime/base_collective_executor.cc",
        "Collective ops is aborted by: failed to connect to all addresses",
    ),
    # -- Horovod --
    PeerText(
        "Horovod",
        r"HorovodInternalError",
        "horovod/horovod: horovod/common/exceptions.py; seen",
        "horovod.common.exceptions.HorovodInternalError: [/third_party/gloo/gloo/transport/tcp/pair.cc:589] "
        "Read error [10.77.1.3]:1024: Connection reset by peer",
    ),
    PeerText(
        "Horovod",
        r"Horovod has been shut down",
        "horovod/horovod: horovod/common/common.h (SHUT_DOWN_ERROR); seen",
        "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce",
    ),
    # -- MPI --
    PeerText(
        "Open MPI 4, 5",
        r"(?:ORTE|PRTE) has lost communication",
        "open-mpi/ompi: orte/mca/errmgr/base/help-errmgr-base.txt; openpmix/prrte: "
        "src/mca/errmgr/base/help-errmgr-base.txt",
        "PRTE has lost communication with a remote daemon.",
    ),
    PeerText(
        "Open MPI 4, 5",
        r"MPI communication peer process has unexpectedly disconnected|mca_btl_tcp_\w+.*[Cc]onnection reset",
        "open-mpi/ompi: opal/mca/btl/tcp/help-mpi-btl-tcp.txt, opal/mca/btl/tcp/btl_tcp_frag.c",
        "An MPI communication peer process has unexpectedly disconnected.  This\nusually indicates a failure",
    ),
    PeerText(
        "Open MPI 5",
        r"An error occurred in Socket closed",
        "seen: a rank on another host was killed",
        "[algo-1:00000] *** An error occurred in Socket closed\n[algo-1:00000] *** reported by process [688521217,0]",
    ),
    PeerText(
        "MPICH, Intel MPI",
        r"Fatal error in \w+: (?:Other MPI error|Unknown error class)",
        "pmodels/mpich: src/mpi/errhan/errutil.c; seen",
        "Abort(807513871) on node 0: Fatal error in internal_Allreduce: Other MPI error, error stack:",
    ),
    PeerText(
        "MPICH, Intel MPI",
        r"Communication error with rank \d+|connection closed by peer \(set=\d+,sock=\d+",
        "pmodels/mpich: src/mpid/ch3/errnames.txt, src/mpid/common/sock/errnames.txt; the library of Intel MPI 2021",
        "MPIDI_CH3U_Recvq_FDU_or_AEP(629): Communication error with rank 3",
    ),
    PeerText(
        "MPI with ULFM",
        r"MPIX?_ERR_PROC_FAILED",
        "open-mpi/ompi: ompi/errhandler/errcode.c",
        "mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED: Process Failure",
    ),
    # -- JAX --
    PeerText(
        "JAX",
        r"[Cc]oordination service.*(?:unavailable|shut|heartbeat)|heartbeat timeout|stopped sending heartbeats"
        r"|(?:error from|RPC to|disconnect from) coordination service"
        r"|[Ss]hutdown barrier (?:in coordination service )?has failed",
        "openxla/xla: xla/tsl/distributed_runtime/coordination/coordination_service.cc, coordination_service_agent.cc; "
        "seen",
        "The task's heartbeat timeout: Task /job:jax_worker/replica:0/task:1 stopped sending heartbeats",
    ),
    PeerText(
        "JAX",
        r"JAX distributed service detected fatal errors",
        "openxla/xla: xla/pjrt/distributed/client.h; seen",
        "Terminating process because the JAX distributed service detected fatal errors.",
    ),
    PeerText(
        "JAX",
        r"Gloo \w+ failed: ",
        "openxla/xla: xla/backends/cpu/collectives/gloo_communicator.cc; seen",
        "jax.errors.JaxRuntimeError: UNKNOWN: Gloo AllGather failed: [external/gloo/gloo/transport/tcp/pair.cc:547]",
    ),
    # -- Ray --
    PeerText(
        "Ray",
        r"\b(?:NodeDied|LocalRayletDied|OwnerDied)Error\b|node it was running on is dead|because its node has died",
        "ray-project/ray: python/ray/exceptions.py; seen",
        "ray.exceptions.NodeDiedError: Task failed because the node it was running on is dead or unavailable.",
    ),
    PeerText(
        # "GCS" alone is Google's storage, too
        "Ray",
        r"[Ff]ailed to connect to GCS (?:within|at address|server)|GCS server is dead",
        "ray-project/ray: src/ray/gcs_client/; seen",
        "ray.exceptions.RpcError: Failed to connect to GCS within 60 seconds",
    ),
    # -- XGBoost --
    PeerText(
        "XGBoost",
        r"XGBoostError: .*/src/collective/",
        "dmlc/xgboost: src/collective/result.cc; seen",
        "xgboost.core.XGBoostError: [09:13:30] /__w/xgboost/xgboost/src/collective/result.cc:83: [data.cc:822]:",
    ),
)

PEER_LOST = re.compile("|".join(f"(?:{text.pattern})" for text in TEXTS), re.S)
"""Finds any of them."""
# sources: torch's ProcessGroupNCCL.cpp (DistBackendErrors of this rank alone) and NCCLUtils.cpp, NCCL's src/init.cc and
# src/misc/shmutils.cc (src/os/linux.cc since 2.30)
_OWN_MISTAKE = re.compile(
    r"EADDRINUSE|[Aa]ddress already in use|failed to listen|ncclInvalid(?:Usage|Argument)|Duplicate GPU detected"
    r"|Multiple Ranks are using the same GPU|ncclUnhandledCudaError|shared memory (?:segment|file) \S*nccl-"
    r"|failed to extend /dev/shm/nccl-|tensor not on device passed to init_process_group"
    r"|GPU devices are not known|NCCL communicator has not been initialized before mem pool"
    r"|invalid usage|illegal memory access|device-side assert"
)


def is_peer_lost(text: str) -> bool:
    """Whether an error is a symptom of a failure elsewhere: another rank or its host went away.

    A connection that the user's own code lost (a ``ConnectionResetError`` of an HTTP client) is not.
    """
    return PEER_LOST.search(text) is not None and not is_own_mistake(text)


def is_own_mistake(text: str) -> bool:
    """Whether ``text`` names a mistake on this host, which a communication library may report like a lost peer."""
    return _OWN_MISTAKE.search(text) is not None
