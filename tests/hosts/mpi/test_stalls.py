"""A job under mpirun that stands still: ranks that wait for another one in MPI do so busily."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from ..test_stalls import MPI, at

pytestmark = [pytest.mark.netns, pytest.mark.timeout(600)]


def test_a_busy_barrier_is_a_wait(under: Callable[[str], Any]) -> None:
    """There is no py-spy here: the ranks write their stacks themselves."""
    job = under("openmpi4")
    program = job.local.program(MPI)
    ran = job.run(program, "--hosts", "2", "--stall-timeout", "2", "--stop-grace", "1")
    assert ran.code == 74
    waits, sleeps = at(MPI, "comm.Barrier"), at(MPI, "time.sleep")
    assert f"rank 0 waits in Barrier ({waits}); rank 1 is in <module> at {sleeps}, asleep" in ran.reason
