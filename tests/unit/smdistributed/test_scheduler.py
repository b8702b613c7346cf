"""Tasks that take turns on a rank: who comes first, with which random numbers, on how many cores."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Modules

pytestmark = pytest.mark.torch


def test_tasks_compute_on_as_many_cores_as_the_script_has_set(modelparallel: Modules, torch: Any) -> None:
    scheduling = modelparallel("torch.scheduler")
    scheduler, seen, before = scheduling.Scheduler(), [], torch.get_num_threads()

    def work() -> None:
        torch.ones(8, 8) @ torch.ones(8, 8)
        seen.append(torch.get_num_threads())

    try:
        for cores in (3, 2):  # in one thread, which has had the first number already
            torch.set_num_threads(cores)
            scheduler.begin()
            scheduler.run(scheduling.Task(work, 0))
    finally:
        torch.set_num_threads(before)
    assert seen == [3, 2]


def test_a_task_that_pauses_lets_older_ones_run_and_keeps_its_random_numbers(
    modelparallel: Modules, torch: Any
) -> None:
    scheduling = modelparallel("torch.scheduler")
    scheduler, ran = scheduling.Scheduler(), []

    def pausing() -> None:
        ran.append(("before", torch.rand(()).item()))
        scheduler.pause()
        ran.append(("behind", torch.rand(()).item()))

    def other() -> None:
        torch.manual_seed(9)
        ran.append(("other", 0.0))

    torch.manual_seed(1)
    expected = [torch.rand(()).item() for _ in range(3)]
    torch.manual_seed(1)
    scheduler.begin()
    first = scheduling.Task(pausing, 1, goes_on=True)
    scheduler.run(first)
    assert first.paused and not first.done
    scheduler.add(scheduling.Task(other, 2), ())
    scheduler.add(scheduling.Task(other, 0), ())
    while (task := scheduler.next(backward=False)) is not None:
        scheduler.run(task)
    scheduler.run(scheduling.Task(lambda: ran.append(("new", torch.rand(()).item())), 3, goes_on=True))
    scheduler.end()
    assert [name for name, _ in ran] == ["before", "other", "behind", "other", "new"]
    assert [number for name, number in ran if name != "other"] == expected


def test_a_task_of_the_calling_thread_has_others_run_while_it_waits(modelparallel: Modules) -> None:
    scheduling = modelparallel("torch.scheduler")
    scheduler, ran = scheduling.Scheduler(), []

    def waiting() -> None:
        assert scheduling.current() is task
        ran.append(scheduler.wait())
        assert scheduling.current() is task

    def others(until: Any) -> None:
        assert scheduling.current() is None and not until.is_new
        scheduler.run(scheduling.Task(lambda: ran.append("other"), 0))
        scheduler.add(until, (), "answer")
        assert scheduler.next(backward=False) is until

    task = scheduling.Task(waiting, 0)
    scheduler.run_here(task, others)
    assert task.done and task.error is None
    assert ran == ["other", "answer"]


def test_forward_passes_come_first_until_there_is_enough_to_do(modelparallel: Modules) -> None:
    ahead, task = modelparallel("torch.scheduler").Ahead(2), modelparallel("torch.scheduler").Task
    seen = []
    for microbatch, backward in ((0, False), (0, False), (1, False), (0, True), (0, False), (2, False), (1, True)):
        ahead.runs(task(lambda: None, microbatch, backward))
        seen.append(ahead.far)
    assert seen == [False, False, True, False, False, True, False]
