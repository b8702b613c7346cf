"""Tells ``jax.distributed.initialize()`` its place in the job, when it is called without arguments.

As soon as JAX's cluster environments have been imported, one more is registered, before the others: they would take a
rank for a task of Slurm's, or ask Kubernetes' API server.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any, Callable, NoReturn

CLUSTERS = "jax._src.clusters"
"""The package of JAX's that has all its cluster environments once it is imported."""
DISTRIBUTED = "jax._src.distributed"
COUNT, RANK, ADDRESS = "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"


class failing:
    """How this process fails. ``status``: what ``sys.exit`` was called with last; ``joined``: it was one of JAX's
    processes when it failed.
    """

    status: Any = None
    joined = False


def register(clusters: Any) -> None:
    """Puts this job's environment before those that JAX knows (it adds subclasses of ``ClusterEnv`` at the end)."""
    base = clusters.ClusterEnv

    class MusterpointCluster(base):  # type: ignore[misc, valid-type]
        name = "musterpoint"

        @classmethod
        def is_env_present(cls) -> bool:
            return all(os.environ.get(variable) for variable in (COUNT, RANK, ADDRESS))

        @classmethod
        def get_coordinator_address(cls, *args: object, **options: object) -> str:
            return os.environ[ADDRESS]

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ[COUNT])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ[RANK])

        @classmethod
        def get_local_process_id(cls) -> None:
            return None  # JAX_LOCAL_DEVICE_IDS says which devices a rank has

    known = getattr(base, "_cluster_types", [])
    if MusterpointCluster in known:
        known.insert(0, known.pop(known.index(MusterpointCluster)))


def leave_when_failing(distributed: Any) -> None:
    """Lets a process that fails end at once, with its own exit code.

    JAX's ``shutdown``, which also runs when Python exits, waits up to 300 s for all other processes to end as well.
    Meanwhile they wait for this one in a collective, and then all die of that. Its destructors wait, too.
    """
    state, leave = getattr(distributed, "State", None), sys.exit
    wait = getattr(state, "shutdown", None)
    if wait is None:
        return

    def shutdown(self: Any) -> None:
        if is_failing() and getattr(self, "client", None) is not None:
            failing.joined = True
        else:
            wait(self)

    def exit_with(status: Any = None) -> NoReturn:
        failing.status = status
        leave(status)

    distributed.State.shutdown = shutdown
    sys.exit = exit_with  # the status of a SystemExit can't be seen from what runs at exit


def end_if_failing() -> None:
    """The last that runs at exit, since it was registered first: ends a process that has left JAX's cluster out."""
    if failing.joined and is_failing():
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                pass
        status = failing.status
        os._exit(status & 0xFF if isinstance(status, int) and status else 1)


def is_failing() -> bool:
    """Whether this process is about to end with an error."""
    handled = sys.exc_info()[1]
    if isinstance(handled, SystemExit):
        return handled.code not in (None, 0)
    if handled is not None:
        return not isinstance(handled, (StopIteration, StopAsyncIteration, GeneratorExit))
    return failing.status not in (None, 0) or ended_main(getattr(sys, "last_traceback", None))


def ended_main(traceback: Any) -> bool:
    """Whether the last exception that Python printed ended the program, and not a callback of a library's."""
    for _ in range(4):  # runpy, then the program
        if traceback is None:
            return False
        if (
            traceback.tb_frame.f_globals.get("__name__") == "__main__"
            and traceback.tb_frame.f_code.co_name == "<module>"
        ):
            return True
        traceback = traceback.tb_next
    return False


CHANGED: dict[str, Callable[[Any], None]] = {CLUSTERS: register, DISTRIBUTED: leave_when_failing}
"""Modules of JAX's, and what is done when one has been imported."""


atexit.register(end_if_failing)
