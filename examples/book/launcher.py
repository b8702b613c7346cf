"""A launcher of one's own, as books and blog posts write it: the estimator's entry point, once per host.

It reads the cluster from SageMaker's variables and starts torch.distributed.run here; every argument but
``--train-script`` goes to the training script as it is.
"""

import argparse
import json
import os
import subprocess
import sys

PORT = 29400


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--train-script", required=True)
    ours, for_the_script = parser.parse_known_args()

    hosts = json.loads(os.environ["SM_HOSTS"])
    command = [
        sys.executable, "-m", "torch.distributed.run",
        f"--nnodes={len(hosts)}",
        f"--node_rank={hosts.index(os.environ['SM_CURRENT_HOST'])}",
        f"--nproc_per_node={max(1, int(os.environ.get('SM_NUM_GPUS', '1')))}",
        f"--rdzv_id={os.environ['SAGEMAKER_JOB_NAME']}",
        "--rdzv_backend=c10d",
        f"--rdzv_endpoint={hosts[0]}:{PORT}",
        ours.train_script,
        *for_the_script,
    ]  # fmt: skip
    print("starting", *command, flush=True)
    process = subprocess.Popen(command, env=os.environ)
    process.wait()
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)


if __name__ == "__main__":
    main()
