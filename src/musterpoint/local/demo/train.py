"""What ``muster local --demo`` runs: four ranks on two hosts, with nothing but Python. One of them fails at the end."""

import os
import pickle
import random
import signal
import socket
import time
from typing import Any

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def meet() -> list[Any]:
    """Connections to the other ranks: rank 0 has one to each, in their order, and they have one to it."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if RANK:
        connection = dial(address).makefile("rwb")
        tell(connection, RANK)
        return [connection]
    with socket.create_server(address) as server:
        callers = [server.accept()[0].makefile("rwb") for _ in range(WORLD - 1)]
    by_rank = {pickle.load(caller): caller for caller in callers}
    return [by_rank[rank] for rank in range(1, WORLD)]


def dial(address: tuple[str, int]) -> socket.socket:
    """A connection to rank 0, which may come a little later."""
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            time.sleep(0.02)  # as rendezvous libraries do: nothing tells a program that another one listens


def tell(connection: Any, value: Any) -> None:
    pickle.dump(value, connection)
    connection.flush()


def gather(others: list[Any], value: Any) -> list[Any]:
    """The values of all ranks, in their order, on each of them."""
    if RANK:
        tell(others[0], value)
        everything: list[Any] = pickle.load(others[0])
        return everything
    everything = [value, *map(pickle.load, others)]
    for other in others:
        tell(other, everything)
    return everything


def main() -> None:
    """Elects a rank, sums what all ranks have, and fails on the last one."""
    others = meet()
    votes = gather(others, random.random())
    elected = votes.index(max(votes))
    total = sum(gather(others, RANK + 1))
    print(f"rank {RANK} of {WORLD}: rank {elected} is elected, the sum is {total}", flush=True)
    gather(others, None)
    if RANK == WORLD - 1:
        raise RuntimeError("this rank was told to fail")
    if RANK == 0:
        signal.pause()  # as a rank that computes; the others wait for it, and nobody looks at the one that failed
    pickle.load(others[0])


if __name__ == "__main__":
    main()
