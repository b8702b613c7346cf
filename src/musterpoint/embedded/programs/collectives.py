"""Measures collectives between two hosts, as one rank of each pair: runs in the user's Python, with torch.

It reads commands from stdin, a JSON object per line, and answers on stdout likewise. First it says
``{"ready": {"port": …, "backend": …}}``: the port is that of a store where ranks of a pair meet. A command names the
run, the store, the rank and the world size; the answer has the measurements or an error. It ends when stdin does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any, Callable

LEAST, MOST_GLOO, MOST_NCCL = 256 << 10, 64 << 20, 512 << 20
"""Bytes of the tensor: it grows while an operation takes less than :data:`LONG`."""
LONG = 0.03
NOISY, REPEATS = 0.1, 3
"""A measurement is made again, up to so many times, while a rank waited for a processor for this part of its time."""
SMALL_TIMES, TIMES = 10, 5
FLOAT = 4


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def time_waited() -> float:
    """Seconds that this process's threads waited for a processor so far (Linux: scheduler/sched-stats.rst);
    0 where the system doesn't tell.
    """
    waited = 0
    for thread in os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ():
        try:
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
                waited += int(file.read().split()[1])
        except (OSError, ValueError, IndexError):  # the thread has ended, or the system doesn't tell
            continue
    return waited / 1e9


class Rank:
    """This process. ``local_rank``: the GPU that it uses, where there are any."""

    def __init__(self, local_rank: int) -> None:
        import torch
        import torch.distributed

        self.torch: Any = torch
        self.dist: Any = torch.distributed
        cuda = torch.cuda.is_available() and self.dist.is_nccl_available()
        self.backend = "nccl" if cuda else "gloo"
        self.device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        self.store = self.dist.TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        """Measures one pair, or one host's own ranks."""
        seconds = float(command["seconds"])
        limit = timedelta(seconds=seconds)
        address, port = command["store"]
        store = self.dist.TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=limit)
        prefixed = self.dist.PrefixStore(f"run-{command['run']}", store)
        rank, size = command["rank"], command["size"]
        self.dist.init_process_group(self.backend, store=prefixed, rank=rank, world_size=size, timeout=limit)
        try:
            return self._measure(rank, command["other"], time.monotonic() + seconds / 2)
        finally:
            self.dist.destroy_process_group()

    def _measure(self, rank: int, other: int, until: float) -> dict[str, Any]:
        """The quietest of some measurements. ``other``: the first rank of the second host."""
        found = self._once(rank, other, until)
        for _ in range(1, REPEATS):
            if self._agreed(found["waited"]) < NOISY or self._agreed(time.monotonic() - until) > 0:
                break
            again = self._once(rank, other, until)
            quieter = self._agreed(again["waited"]) < self._agreed(found["waited"])
            found = again if quieter else found
        return found

    def _once(self, rank: int, other: int, until: float) -> dict[str, Any]:
        begun, before = time.monotonic(), time_waited()
        small = self._tensor(FLOAT)
        latency = min(self._timed(lambda: self.dist.all_reduce(small)) for _ in range(SMALL_TIMES))
        size, most = LEAST, MOST_NCCL if self.backend == "nccl" else MOST_GLOO
        while self._second(size) < LONG and size < most:
            size *= 4
        tensor = self._tensor(size)
        reduce = self._best(lambda: self.dist.all_reduce(tensor), until)
        there = self._best(lambda: self.dist.broadcast(tensor, 0), until)
        back = self._best(lambda: self.dist.broadcast(tensor, other), until)
        return {
            "all_reduce": size / reduce / 1e9,
            "broadcast": size / max(there, back) / 1e9,
            "latency": latency,
            "bytes": size,
            "waited": min(1.0, max(0.0, time_waited() - before) / (time.monotonic() - begun)),
        }

    def _second(self, size: int) -> float:
        """Seconds of an all-reduce of ``size`` bytes, not the first one."""
        tensor = self._tensor(size)
        self._timed(lambda: self.dist.all_reduce(tensor))
        return self._agreed(self._timed(lambda: self.dist.all_reduce(tensor)))

    def _tensor(self, size: int) -> Any:
        return self.torch.ones(size // FLOAT, dtype=self.torch.float32, device=self.device)

    def _best(self, operation: Callable[[], Any], until: float) -> float:
        """Seconds of the fastest of some; the ranks agree on when to stop."""
        best = float("inf")
        for _ in range(TIMES):
            best = min(best, self._agreed(self._timed(operation)))
            if self._agreed(time.monotonic() - until) > 0:
                break
        return best

    def _timed(self, operation: Callable[[], Any]) -> float:
        """Seconds until every rank is through: a broadcast's source would be earlier than who receives."""
        begun = time.perf_counter()
        operation()
        self._agreed(0.0)
        return time.perf_counter() - begun

    def _agreed(self, value: float) -> float:
        """The largest of all ranks' values."""
        found = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(found, op=self.dist.ReduceOp.MAX)
        return float(found.item())  # with CUDA this waits for the device


def main() -> None:
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # an operation that is over time raises
    try:
        rank = Rank(int(os.environ.get("LOCAL_RANK", "0")))
    except Exception as error:
        say(failed=f"{type(error).__name__}: {error}")
        return
    say(ready={"port": rank.store.port, "backend": rank.backend})
    for line in sys.stdin:
        command = json.loads(line)
        try:
            found = rank.run(command)
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            found = {"error": f"{type(error).__name__}: {first}"[:400]}
        say(done=command["run"], **found)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # a store or a communicator that hangs must not keep it
