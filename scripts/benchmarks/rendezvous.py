#!/usr/bin/env python3
"""The same number of members at torch's TCPStore, and in torchelastic's c10d rendezvous over one.

The store is a process of its own. Its members are threads of this process with a client each; with c10d each is one of
torchelastic's own handlers, as each of its agents has one. One line of JSON comes out: seconds until the last member
has what the others said, and the processor time of the store and of all members.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

ADDRESS = "127.0.0.1"
PATIENCE = timedelta(seconds=240)
AT_ONCE = 32
RECORD = '["algo-%d","10.%d.%d.%d",8,true,"0.1",8,[]]'


def serve(port: int) -> None:
    """The store's process; it ends with its stdin."""
    store = TCPStore(ADDRESS, port, is_master=True, wait_for_workers=False, timeout=PATIENCE)
    print("ready", flush=True)
    sys.stdin.read()
    del store


def client(port: int) -> Any:
    return TCPStore(ADDRESS, port, is_master=False, wait_for_workers=False, timeout=PATIENCE)


def through_store(members: int, port: int) -> None:
    """Each member says what it is; the first one makes the list of all, which each member reads. No member waits in a
    thread of its own for that: all say it first.
    """
    stores: list[Any] = [None] * members

    def say(index: int) -> None:
        stores[index] = store = client(port)
        store.set(f"host/{index}", RECORD % (index, index >> 16 & 255, index >> 8 & 255, index & 255))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(say, range(members)))
        found = stores[0].multi_get([f"host/{index}" for index in range(members)])
        stores[0].set("roster", b"[" + b",".join(found) + b"]")
        sizes = set(pool.map(lambda store: len(store.get("roster")), stores))
    assert len(sizes) == 1


def through_c10d(members: int, port: int) -> None:
    failed: list[BaseException] = []
    ready = threading.Barrier(members + 1)

    def join(index: int) -> None:
        try:
            store = client(port)
            backend = C10dRendezvousBackend(store, "bench")
            handler = DynamicRendezvousHandler.from_backend(
                "bench", store, backend, members, members, local_addr=ADDRESS, timeout=None
            )
            ready.wait()
            handler.next_rendezvous()
        except BaseException as error:
            failed.append(error)
            ready.abort()

    threads = [threading.Thread(target=join, args=(index,), daemon=True) for index in range(members)]
    for thread in threads:
        thread.start()
    try:
        ready.wait()
    except threading.BrokenBarrierError:
        raise SystemExit(f"a member failed: {failed[0]!r}") from None
    began = time.perf_counter()
    for thread in threads:
        thread.join(max(0.0, PATIENCE.total_seconds() - (time.perf_counter() - began)))
    if failed or any(thread.is_alive() for thread in threads):
        raise SystemExit(f"not all of {members} met within {PATIENCE.total_seconds():g} s {failed[:1]}")


def cpu_seconds(pid: int) -> float:
    """Of all threads of a process."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--c10d", action="store_true", help="torchelastic's rendezvous instead of the store alone")
    parser.add_argument("--serve", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * options.members + 512), hard))
    if options.serve:
        serve(options.serve)
        return
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port = probe.getsockname()[1]
    # torch asks the resolver for each client's name to log it, which some resolvers take seconds for
    os.environ.update(TORCH_CPP_LOG_LEVEL="ERROR", RES_OPTIONS="timeout:1 attempts:1")
    command = [sys.executable, __file__, "--members", str(options.members), "--serve", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as store:
        assert store.stdin is not None and store.stdout is not None
        store.stdout.readline()
        spent, own = cpu_seconds(store.pid), time.process_time()
        began = time.perf_counter()
        (through_c10d if options.c10d else through_store)(options.members, port)
        seconds = time.perf_counter() - began
        print(json.dumps({
            "members": options.members, "kind": "c10d" if options.c10d else "store", "seconds": round(seconds, 3),
            "store_cpu_s": round(cpu_seconds(store.pid) - spent, 2),
            "members_cpu_s": round(time.process_time() - own, 2),
        }), flush=True)  # fmt: skip
        store.kill()  # torchelastic's keep-alives would wait for it
    os._exit(0)


if __name__ == "__main__":
    main()
