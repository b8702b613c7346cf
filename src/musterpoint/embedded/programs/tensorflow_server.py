"""A TensorFlow server: the task that TF_CONFIG names, for the other tasks of its cluster to use.

Run by the user's Python as a program of its own, never imported by musterpoint. It serves until it is killed: the
supervisor ends it when every rank has ended.
"""

from __future__ import annotations

import json
import os


def main() -> None:
    import tensorflow  # type: ignore[import-untyped,import-not-found,unused-ignore]

    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    server = tensorflow.distribute.Server(
        tensorflow.train.ClusterSpec(config["cluster"]), job_name=task["type"], task_index=task["index"]
    )
    server.join()


if __name__ == "__main__":
    main()
