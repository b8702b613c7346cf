"""What a program sees otherwise than under sagemaker-training 5.1.4: the list behind docs/sagemaker.md and its test.

Nothing else in a program's environment may differ; tests/contract compares all of it, under both toolkits.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """``where`` names variables (``*``: any letters), or what else differs; ``theirs`` and ``ours`` say how."""

    where: str
    theirs: str
    ours: str


DIFFERENCES = tuple(Difference(*row) for row in (
    ("SM_HOSTS, every list of hosts", "as in the file (algo-10 before algo-2)", "natural order, which is rank order"),
    ("SM_USER_ARGS, the program's arguments", "sorted by name", "in the order of hyperparameters.json"),
    ("default_user_module_name", "hidden from the program", "an ordinary hyperparameter"),
    ("SM_HP_*, SM_CHANNEL_*", "names as they come, such as SM_HP_BATCH-SIZE",
     "the same, and SM_HP_BATCH_SIZE, which shells can read"),
    ("a name or value that can't be a variable, or is longer than 128 KiB", "the job fails", "left out"),
    ("SM_INSTANCE_GROUPS, SM_INSTANCE_GROUPS_DICT, SM_CURRENT_INSTANCE_GROUP_HOSTS",
     "one entry per entry of the file, the last one of a name wins", "entries of the same name are one group"),
    ("SM_CURRENT_INSTANCE_GROUP", "homogeneousCluster unless current_group_name is there",
     "also read from current_instance_group, else from the group that has the current host"),
    ("SM_CURRENT_INSTANCE_TYPE", "local unless current_instance_type is there", "the type of the host's group first"),
    ("SM_DISTRIBUTION_INSTANCE_GROUPS", "the current group where the job names none",
     "the chosen group, the same on all hosts"),
    ("SM_TRAINING_ENV", "one property for each of theirs", "the same, with the differences above, and what SDK v3 has"),
    ("SM_TRAINING_ENV: job_name", "TRAINING_JOB_NAME, else null", "the job's name, wherever it is said"),
    ("SM_TRAINING_ENV: master_hostname, is_master, distribution_hosts",
     "the first host in the file's order, of the groups above",
     "the leader: the first in natural order, of the groups above"),
    ("SM_CHECKPOINT_DIR, SM_CURRENT_HOST_RANK, SM_ENTRY_SCRIPT, SM_HOST_COUNT, SM_INPUT_DATA_DIR, SM_MASTER_ADDR, "
     "SM_MASTER_PORT, SM_OUTPUT_FAILURE, SM_SOURCE_DIR", "not set", "set, as SDK v3 has them (SM_CHECKPOINT_DIR: from "
     "checkpointconfig.json)"),
    ("SAGEMAKER_METRICS_DIRECTORY", "as the platform set it", "else that directory, if the platform made it"),
    ("SAGEMAKER_JOB_NAME", "empty unless sagemaker_job_name is sent", "else the job's name"),
    ("SAGEMAKER_REGION", "as boto3 finds it", "the hyperparameter, AWS_REGION, AWS_DEFAULT_REGION or the job's ARN"),
    ("SM_MODULE_DIR", "the code directory unless sagemaker_submit_directory is sent",
     "SAGEMAKER_SUBMIT_DIRECTORY is read, too"),
    ("variables that are set already", "overwritten", "kept"),
    ("PYTHONPATH", "the whole sys.path of the toolkit's own interpreter",
     "the code directory before the user's own, and behind it what stands in for sagemaker_training"),
    ("PYTHONUNBUFFERED, PYTHONFAULTHANDLER", "not set",
     "1: the last lines before a crash reach the log, and a program that a signal ends says where it was"),
    ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "not set",
     "the seconds that a stop leaves the ranks: a torchrun that the program starts gives its own as many"),
    ("OMP_NUM_THREADS", "not set",
     "processors over slots, under launchers that start several ranks per host; else not set"),
    ("MASTER_ADDR, MASTER_PORT, NODE_RANK, NNODES, NPROC_PER_NODE", "not set",
     "on several hosts: where programs that start their own ranks can meet"),
    ("NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME", "not set, but under torch_distributed and MPI NCCL's, to "
     "SM_NETWORK_INTERFACE_NAME", "the interface towards the leader, if it is there; Gloo's is the loopback for ranks "
     "of a host that has no other"),
    ("LD_LIBRARY_PATH", "as it was", "in front of it CUDA's compatibility libraries, where the driver needs them"),
    ("MUSTER_*", "kept",
     "our options are taken out; MUSTER_OUTER and others by which a launcher below finds us are added"),
))  # fmt: skip
