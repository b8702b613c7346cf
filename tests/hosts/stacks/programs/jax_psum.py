"""Sums ranks over all processes, after an ``initialize()`` without arguments; then ends as the word says.

``raise``, ``die``: so ends the last (or the second) process, while the others wait for it in a
collective; in the second attempt all end well.
``wait``: all sum until they are stopped.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils


def save(signo: int, frame: object) -> None:
    (Path(os.environ["SM_MODEL_DIR"]) / f"checkpoint-{jax.process_index()}").touch()
    os._exit(0)


def main(then: str = "") -> None:
    jax.distributed.initialize()
    if int(os.environ["MUSTER_ATTEMPT"]):
        then = ""
    rank, count = jax.process_index(), jax.process_count()
    total = jax.pmap(lambda each: jax.lax.psum(each, "i"), axis_name="i")(jnp.full(jax.local_device_count(), rank))
    if then == "wait" and rank % 2:
        signal.signal(signal.SIGTERM, save)
    print(f"rank {os.environ['RANK']} is {rank} of {count}: sum {int(total[0])}", flush=True)
    if then:
        multihost_utils.process_allgather(jnp.ones(1))  # so that all have printed it
    if then == "raise" and rank == count - 1:
        raise LookupError("no such shard")
    if then == "die" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while then:
        multihost_utils.process_allgather(jnp.ones(1))


if __name__ == "__main__":
    main(*sys.argv[1:])
