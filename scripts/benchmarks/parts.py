"""The parts of scripts/bench: what each compares, and about how many minutes it takes on two idle cores."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """``about``: as a sentence. ``minutes`` of a whole run, and of one with --quick."""

    about: str
    minutes: float
    quick: float


PARTS = {
    "start": Part(
        "`train` to the first line of the user's output, beside bare Python and `sagemaker-training`.", 1, 0.5
    ),
    "memory": Part("The memory of the supervisor and of a rank's stub.", 0.5, 0.5),
    "pump": Part("Log lines through `train`, beside the same lines written straight into the pipe.", 4, 2),
    "stop": Part("SIGTERM to the last rank's handler on one host, and the last rank's end to `train`'s.", 2, 1),
    "fault": Part(
        "A rank fails on one of 2, 8 and 64 hosts: the time until every host has ended, beside plain torchrun.", 20, 2
    ),
    "stops": Part(
        "SIGTERM to one of 2, 8 and 64 hosts: the time until the last rank's handler on the last host.", 3, 1
    ),
    "restart": Part("A rank is killed: the time until all ranks run again, beside torchrun and ft_launcher.", 3, 1),
    "ddp": Part("Samples a second of a DistributedDataParallel training with 1, 2 and 4 ranks, beside torchrun.", 6, 2),
    "rollcall": Part("The roll call of 1,000 and 10,000 members, and what beats cost the leader.", 3, 3),
    "mpi": Part("Three MPIs on two hosts: start, beside plain mpirun over ssh, and the end.", 2, 1),
    "smddp": Part("A step of DistributedDataParallel over `smddp`, beside the plain backend.", 1, 1),
    "smp": Part("A step of a pipeline of `smdistributed.modelparallel`, beside torch's 1F1B.", 10, 10),
    "tensor": Part("A step of layers whose tensors two ranks share, beside DTensor by hand.", 3, 3),
    "shards": Part("The memory of ranks that share a model, beside the whole model and FSDP2.", 3, 3),
    "serve": Part("`muster serve`: a job's way, a queue, lists of many jobs, a line's way to CloudWatch.", 4, 4),
    "data": Part("Channels from S3 and results to it, beside boto3, `s5cmd` and `aws s3 cp`.", 15, 4),
    "culprits": Part(
        "Which tool's last words name the right rank, code and error; docs/culprits.md has these figures.", 120, 120
    ),
}
