"""Many pieces of work on one rank, of which exactly one runs at a time: as coroutines, but with threads.

A piece of work is the user's step function for one microbatch, or a request of another rank. Each has a thread, since
user code and torch's autograd call each other in ways that only a thread can be stopped in. Where it needs an answer of
another rank it waits, and the scheduler continues another one. So while one microbatch is computed elsewhere, this rank
computes another: that is the pipeline.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any, Callable

import torch

from .randomness import Stream


class Task:
    """One piece of work.

    microbatch: which one it belongs to; the older goes first.
    backward: whether it is in its backward pass.
    goes_on: its random numbers go on from where those of the process are, until it waits for the first time.
    key: what it is or waits for; the same on all ranks whose pipelines are alike.
    result, error: how it ended, once ``done``.
    """

    def __init__(self, work: Callable[[], Any], microbatch: int, backward: bool = False, goes_on: bool = False) -> None:
        self.work = work
        self.goes_on = goes_on
        self.microbatch = microbatch
        self.backward = backward
        self.order = 0
        self.key: tuple[Any, ...] = ()
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._answer: Any = None
        self._thread: _Thread | None = None


_local = threading.local()


def current() -> Task | None:
    """The task that the calling thread works on."""
    return getattr(_local, "task", None)


class Scheduler:
    """Starts, stops and continues tasks. Only one thread calls it, and waits while a task runs.

    Args:
        device: the GPU of the tasks, since torch has one per thread.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device
        self._ready: list[Task] = []
        self._numbers = itertools.count()
        self._idle: list[_Thread] = []
        self.turn = threading.Semaphore(0)
        self._stream = Stream.current(device)

    def begin(self) -> None:
        """A step begins."""
        self._stream = Stream.current(self.device)

    def end(self) -> None:
        """A step is over: the process's random numbers go on."""
        self._stream.resume(self.device)

    def add(self, task: Task, key: tuple[Any, ...], answer: Any = None) -> None:
        """The task can run: it is new, or ``answer`` is what it waits for."""
        task.key = key
        task.order = next(self._numbers)
        task._answer = answer
        self._ready.append(task)

    def next(self, backward: bool) -> Task | None:
        """Of the tasks that can run and are in their forward or in their backward pass: the oldest microbatch's."""
        ready = [task for task in self._ready if task.backward is backward]
        if not ready:
            return None
        chosen = min(ready, key=lambda task: (task.microbatch, task.order))
        self._ready.remove(chosen)
        return chosen

    def take(self, key: tuple[Any, ...]) -> Task | None:
        """The task of that key, if it can run."""
        found = next((task for task in self._ready if task.key == key), None)
        if found is not None:
            self._ready.remove(found)
        return found

    def run(self, task: Task) -> None:
        """Starts or continues the task; returns when it waits or is done."""
        if task._thread is None:
            task._thread = self._idle.pop() if self._idle else _Thread(self)
        thread = task._thread
        if task.goes_on:
            self._stream.resume(self.device)
        thread.give(task)
        self.turn.acquire()
        if task.goes_on:
            task.goes_on = False
            self._stream = Stream.current(self.device)
        if task.done:
            task._thread = None
            self._idle.append(thread)

    def wait(self) -> Any:
        """Called by a task: lets others run until it gets an answer, and returns that; an exception is raised."""
        task = current()
        assert task is not None and task._thread is not None
        thread = task._thread
        stream = Stream.current(self.device)
        self.turn.release()
        thread.go.acquire()
        stream.resume(self.device)
        answer, task._answer = task._answer, None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def clear(self) -> None:
        """Forgets what is ready; tasks that wait never continue."""
        self._ready.clear()


class _Thread(threading.Thread):
    """A thread that works on one task after the other."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(name="smp task", daemon=True)
        self._scheduler = scheduler
        self._task: Task | None = None
        self.go = threading.Semaphore(0)
        self.start()

    def give(self, task: Task) -> None:
        self._task = task
        self.go.release()

    def run(self) -> None:
        # a backward pass runs in the thread that calls it, also on GPUs: one that waits for another rank would hold
        # torch's only thread for the device, and nested calls would never end
        torch.autograd.set_multithreading_enabled(False)
        if self._scheduler.device is not None:
            torch.cuda.set_device(self._scheduler.device)
        while True:
            self.go.acquire()
            task = self._task
            assert task is not None
            _local.task = task
            try:
                task.result = task.work()
            except BaseException as error:  # raised again where the scheduler is called
                task.error = error
            _local.task = self._task = None
            task.done = True
            del task
            self._scheduler.turn.release()
