"""What a person sees who runs scripts of their own for the first time: nothing is silent, failures say what to do."""

from __future__ import annotations

import socket

ENDS_EARLY = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()

def save_checkpoint():
    dist.all_reduce(torch.zeros(1))

if rank == 0:
    save_checkpoint()
else:
    os._exit(0)  # as a program that is through: its sockets are closed, and it says nothing
"""


def test_a_rank_whose_peers_had_ended_with_0(local) -> None:  # type: ignore[no-untyped-def]
    ran = local.run(
        "--hosts", "2", "--slots", "2", "--launcher", "ranks", "--backend", "process", local.program(ENDS_EARLY)
    )
    assert ran.code == 1, ran.stderr
    assert "\nranks 1–3 had ended with 0; rank 0 was still in save_checkpoint\n" in ran.reason
    assert "exit code" not in ran.reason.partition("exit code")[2], "it is said once"
    outcome = ran.outcome("algo-1")
    assert (outcome["class"], outcome["rank"], outcome["retryable"]) == ("user", 0, False)
    assert "other rank" not in outcome["reason"]


LOOKS_OFTEN = """
import musterpoint.core.supervise.waiting as waiting
waiting.PAUSES = (0.2, 600.0)
"""
ONE_GOES_ON = """
import os, time
while os.environ["RANK"] == "0":
    time.sleep(60)
"""


def test_who_is_waited_for_is_said_and_who_ran_when_it_was_stopped(local) -> None:  # type: ignore[no-untyped-def]
    local.program(LOOKS_OFTEN, "sitecustomize.py")
    local.environ["PYTHONPATH"] = str(local.folder)
    ran = local.stop(
        "--hosts", "2", "--backend", "process", "--launcher", "ranks", local.program(ONE_GOES_ON),
        when="musterpoint: the ranks here have ended; waiting for algo-1, where ranks still run, for ", lines=1,
    )  # fmt: skip
    assert ran.code == 143, ran.stderr
    assert "told to stop: rank 0 still runs here" in ran.log("algo-1")
    assert "told to stop: the ranks here have ended; waiting for algo-1" in ran.log("algo-2")
    assert "waiting for" not in ran.log("algo-1")


def test_a_leader_that_cannot_listen_ends_the_job_at_once(local) -> None:  # type: ignore[no-untyped-def]
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as taken:
        port = str(taken.getsockname()[1])
        ran = local.run(
            "--hosts", "2", "--backend", "process", "--launcher", "script", "--rollcall-port", port, local.program("")
        )
    assert ran.code == 64, ran.stderr
    assert "algo-1 has ended before it met the others: ending algo-2 too" in ran.stderr
    assert ran.reason.startswith(f"muster: --rollcall-port {port} can't be listened on by algo-1")
