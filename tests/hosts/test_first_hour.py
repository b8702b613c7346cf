"""What a person sees who runs scripts of their own for the first time: nothing is silent, failures say what to do."""

from __future__ import annotations

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
