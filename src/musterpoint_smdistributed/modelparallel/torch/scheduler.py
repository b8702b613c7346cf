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


class Ahead:
    """Of how many microbatches of a step the forward pass of a rank is ahead of the backward pass.

    As long as there are few of them forward passes come first, so that there is something to do until the gradients of
    the next one are there. A loss has to be computed on the first rank in between, hence one more than in 1F1B.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._forward: set[int] = set()
        self._backward: set[int] = set()

    @property
    def far(self) -> bool:
        return len(self._forward) >= self._enough

    def runs(self, task: Task) -> None:
        if task.backward:
            self._backward.add(task.microbatch)
            self._forward.discard(task.microbatch)
        elif task.microbatch not in self._backward:
            self._forward.add(task.microbatch)


class Task:
    """One piece of work.

    microbatch: which one it belongs to; the older goes first.
    backward: whether it is in its backward pass.
    goes_on: its random numbers go on from where those of the process are, until it waits for the first time.
    key: what it is or waits for; the same on all ranks whose pipelines are alike.
    paused: it has stopped for others, and waits for nothing.
    result, error: how it ended, once ``done``.
    caller: the rank of the pipeline that has called, where it serves a call.
    fresh: attributes and buffers elsewhere that its own calls have changed, as they are in its graph.
    passed: its calls, by their modules, whose graph a backward pass has freed.
    since: autograd's number of the first node of its graph that hasn't been freed.
    """

    def __init__(self, work: Callable[[], Any], microbatch: int, backward: bool = False, goes_on: bool = False) -> None:
        self.work = work
        self.goes_on = goes_on
        self.microbatch = microbatch
        self.backward = backward
        self.order = 0
        self.key: tuple[Any, ...] = ()
        self.done = False
        self.paused = False
        self.result: Any = None
        self.caller: int | None = None
        self.fresh: dict[Any, Any] = {}
        self.since = 0
        self.passed: list[str] = []
        self.error: BaseException | None = None
        self._answer: Any = None
        self._thread: _Thread | None = None
        self._others: Callable[[Task], None] | None = None

    @property
    def is_new(self) -> bool:
        """Whether it hasn't run yet, or is done."""
        return self._thread is None and self._others is None


_local = threading.local()
_leaf = torch.zeros((), requires_grad=True)


def sequence() -> int:
    """The number that autograd gives its next node in this thread; those of one thread rise. 0: in a transform."""
    with torch.enable_grad():
        node: Any = _leaf.view(()).grad_fn
    return 0 if node is None else int(node._sequence_nr())


def current() -> Task | None:
    """The task that the calling thread works on."""
    return getattr(_local, "task", None)


class Scheduler:
    """Starts, stops and continues tasks. Only one thread calls it, and waits while a task runs."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device
        self._ready: list[Task] = []
        self._numbers = itertools.count()
        self._idle: list[_Thread] = []
        self.turn = threading.Lock()  # free: the scheduler's thread goes on
        self.turn.acquire()
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self._stream = Stream.current(self.device)
        self.cores = torch.get_num_threads()

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
        task.paused = False
        thread.task = task
        thread.go.release()
        self.turn.acquire()
        if task.goes_on and not task.paused:
            task.goes_on = False
            self._stream = Stream.current(self.device)
        if task.done:
            task._thread = None
            self._idle.append(thread)

    def run_here(self, task: Task, others: Callable[[Task], None]) -> None:
        """Runs the task in the calling thread, which is faster: most answers to other ranks need no others.
        ``others``: runs others until the task is the next to go on; called where it waits."""
        task._others = others
        _local.task = task
        task.since = sequence()
        try:
            with torch.autograd.set_multithreading_enabled(False):
                task.result = task.work()
        except BaseException as error:
            task.error = error
        finally:
            _local.task = task._others = None
            task.done = True

    def wait(self) -> Any:
        """Called by a task: lets others run until it gets an answer, and returns that; an exception is raised."""
        task = self._stop()
        answer, task._answer = task._answer, None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def pause(self) -> None:
        """Called by a task: it can run, and others may come before it, but none that goes on from where it began."""
        task = current()
        assert task is not None
        task.paused = True
        self.add(task, task.key)
        self._stop()

    def _stop(self) -> Task:
        task = current()
        assert task is not None
        stream = Stream.current(self.device)
        if task._others is not None:
            _local.task = None
            try:
                task._others(task)
            finally:
                _local.task = task
        else:
            assert task._thread is not None
            self.turn.release()
            task._thread.go.acquire()
        stream.resume(self.device)
        return task

    def clear(self) -> None:
        """Forgets what is ready; tasks that wait never continue."""
        self._ready.clear()


class _Thread(threading.Thread):
    """A thread that works on one task after the other."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(name="smp task", daemon=True)
        self._scheduler = scheduler
        self.task: Task | None = None
        self.go = threading.Lock()  # free: the task goes on
        self.go.acquire()
        self.start()

    def run(self) -> None:
        # a backward pass runs in the thread that calls it, also on GPUs: one that waits for another rank would hold
        # torch's only thread for the device, and nested calls would never end
        torch.autograd.set_multithreading_enabled(False)
        if self._scheduler.device is not None:
            torch.cuda.set_device(self._scheduler.device)
        while True:
            self.go.acquire()
            task = self.task
            assert task is not None
            _local.task = task
            task.since = sequence()
            # OpenMP has this for each thread: without it a new one takes all cores, whatever the script has set
            if torch.get_num_threads() != self._scheduler.cores:
                torch.set_num_threads(self._scheduler.cores)
            try:
                task.result = task.work()
            except BaseException as error:  # raised again where the scheduler is called
                task.error = error
            _local.task = self.task = None
            task.done = True
            del task
            self._scheduler.turn.release()
