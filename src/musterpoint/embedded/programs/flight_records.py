"""What torch's flight recorder knows of ranks, asked for while they stand still."""

from __future__ import annotations

import base64
import threading
import time

from musterpoint.embedded.programs.process_files import answers_of, children_of, poke, read, tree

FLIGHT_FILE = "muster-flight"
"""How the name of the memory file begins into which a rank writes what torch's flight recorder knows."""
FLIGHT_COUNT, FLIGHT_WRITING = 8, 1 << 63
FLIGHT_SECONDS = 5.0
"""For all ranks together: for their answers with stacks; torch looks at NCCL's pipe every second."""
MOST_FLIGHT = 8 << 20
PIPE, DUMP = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"


def flights(ranks: dict[int, int]) -> dict[int, str]:
    """What torch's flight recorder knows of each rank, in base64; without ranks that don't answer in time."""
    children = children_of()
    asked = {rank: Flight(rank, tree(pid, children)) for rank, pid in ranks.items()}
    until = time.monotonic() + FLIGHT_SECONDS
    while (waiting := [flight for flight in asked.values() if not flight.done]) and time.monotonic() < until:
        threading.Event().wait(0.02)
        for flight in waiting:
            flight.look()
    return {rank: base64.b64encode(flight.found).decode() for rank, flight in asked.items() if flight.found}


class Flight:
    """What torch's flight recorder knows of one rank: asked for at once, and read as soon as it is there.

    A rank whose Python has our thread answers by it, twice; else NCCL's own is asked, where its pipe is. ``found`` is
    the best answer so far, ``done`` says that no better one comes.
    """

    def __init__(self, rank: int, pids: list[int]) -> None:
        self.found, self.done = b"", False
        self._path, self._before = "", -1
        if not any(self._ask_thread(pid) or self._ask_nccl(pid, rank) for pid in pids):
            self.done = True

    def _ask_thread(self, pid: int) -> bool:
        try:
            for path, bell in answers_of(pid, FLIGHT_FILE):
                self._path = path
                with open(path, "rb") as file:
                    self._before = int.from_bytes(file.read(FLIGHT_COUNT), "big")
                return poke(bell)
        except (OSError, ValueError):
            pass
        return False

    def _ask_nccl(self, pid: int, rank: int) -> bool:
        environ = dict(word.partition("=")[::2] for word in read(f"/proc/{pid}/environ").split("\0"))
        if not environ.get(PIPE) or not environ.get(DUMP) or not poke(f"{environ[PIPE]}{rank}.pipe"):
            return False
        self._path, self._before = f"{environ[DUMP]}{rank}", -1
        return True

    def look(self) -> None:
        """Reads what has been answered by now."""
        try:
            with open(self._path, "rb") as file:
                data = file.read(MOST_FLIGHT)
                file.seek(0)
                head = file.read(FLIGHT_COUNT)
        except OSError:
            self.done = self._before >= 0  # the rank has ended; NCCL's file may still come
            return
        if self._before < 0:
            self.found = data if data.endswith(b".") else b""  # the last byte of a pickle
            self.done = bool(self.found)
            return
        count = int.from_bytes(head, "big")
        if head == data[:FLIGHT_COUNT] and self._before < count < FLIGHT_WRITING:
            self.found, self.done = data[FLIGHT_COUNT:], count > self._before + 1
