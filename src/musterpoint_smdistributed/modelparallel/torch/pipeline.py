"""The ranks of this rank's pipeline: the one that runs the step function leads, the others run modules for it."""

from __future__ import annotations

import functools
import os
import threading
from typing import Any, Callable, Sequence

import torch

from . import communication, structure
from .messages import Context, End, Start, Started, default_device
from .packing import pack, unpack
from .routing import ModuleRouting
from .scheduler import Task
from .server import Alike, Bodies, Merge, Outcome, Server, Waited
from .state import state
from .transport import Inbox, Message, Transport, new_token, own_host


class Worker(Server):
    """Answers the leader's requests, and those of other workers, until the step is over."""

    is_leader = False

    def step(
        self, name: str, bodies: Bodies, merge: Merge, began: Callable[[bool], None], alike: Alike
    ) -> Outcome[Any]:
        """As :meth:`.Server.step` says.

        A step of another name is served as well and its end ignored: the leader runs it alone.
        """
        with self.failing_together():
            while True:
                while not self._starts:
                    self._take(lambda: f"rank {self._ranks[0]} to call {name}")
                start = self._starts.pop(0)
                if start.name != name:
                    self._serve(start)
                    continue
                began(start.context.grad)
                return self._serve(start)

    def _serve(self, start: Start) -> Outcome[Any]:
        self._begin()
        self._step = start.number
        self._send(0, Started(start.number))
        names = self._routing.names
        if start.context.grad:
            structure.compare(names.parameters, start.wanting, self._ranks[self._rank], self._ranks[0])
        names.look(self._routing.guard.others.values())
        self._routing.begin(start.training)
        self._routing.started(start.name, start.context.grad, start.anew)
        early, self._early = self._early, []
        for message in early:
            self._dispatch(message)
        try:
            waits_for = f"the next request, or the end of {start.name} on rank {self._ranks[0]}"
            while not self._is_over:
                task = self._next(waits_for)
                if task is not None:
                    self._run(task, functools.partial(self._run_others, waits_for))
        finally:
            self._routing.end()
        end, tensors = self._ends[self._step]
        outputs = unpack(end.outputs, tensors, None)
        self._routing.ended(self._gather)
        self._finish()
        return Outcome(outputs, end.backward)

    def _next(self, waits_for: str) -> Task | None:
        """What runs next on a rank that serves; None: it isn't known before another message has come."""
        self._take_all()
        if self._turns.follows:
            task = self._told([])
        else:
            backward = self._ahead.far and not self._holds_backward
            task = self._scheduler.next(backward) or self._scheduler.next(not backward)
        if task is None and not self._is_over:
            self._take(lambda: waits_for)
        return task

    def _run_others(self, waits_for: str, until: Task) -> None:
        """Runs what else there is, as long as a task of this thread waits."""
        try:
            self._routing.guard.ran(until.microbatch)
            while (task := self._next(waits_for)) is not until:
                if task is not None:
                    self._run(task)
            self._announce(until)
        except BaseException as error:
            self._interrupted = error  # the script's own code may catch it on its way
            raise

    def _wait_with_leader(self, work: Any) -> None:
        with self.failing_together():
            threading.Thread(target=self._watch, args=(work,), name="smp wait", daemon=True).start()
            while not self._waited:
                if self._starts and self._starts[0].met == self._met:
                    # the leader has not come to this collective yet; else it is a step that this rank will call, too
                    self._serve(self._starts.pop(0))
                else:
                    self._take(None)
            error = self._waited.pop().error
            if error is not None:
                raise self.failure_of_another(error)

    def _watch(self, work: Any) -> None:
        try:
            work.wait()
            ended = Waited(None)
        except BaseException as error:
            ended = Waited(error)
        self._inbox.put(Message(self._rank, ended, []))


class Leader(Server):
    """Runs the step function, once per microbatch, and has other ranks run their modules."""

    is_leader = True

    def step(
        self, name: str, bodies: Bodies, merge: Merge, began: Callable[[bool], None], alike: Alike
    ) -> Outcome[Any]:
        """As :meth:`.Server.step` says."""
        with self.failing_together():
            began(torch.is_grad_enabled())
            with alike:
                return self._lead(name, bodies, merge)

    def _lead(self, step: str, bodies: Bodies, merge: Merge) -> Outcome[Any]:
        self._begin()
        context = Context.current()
        self._step += 1
        names, guard = self._routing.names, self._routing.guard
        flags = self._routing.training(), structure.wanting(names.parameters)
        start = Start(step, self._step, self._met, context, *flags, names.look(guard.others.values()))
        for peer in self._peers():
            self._send(peer, start)
        self._routing.started(step, context.grad, start.anew)
        device = default_device()

        def run(body: Callable[[], Any]) -> Any:
            with device, context.entered():
                return body()

        waiting = [Task(functools.partial(run, body), number, goes_on=True) for number, body in enumerate(bodies())]
        for task in waiting:
            task.key = ("new", task.microbatch)
        tasks = list(waiting)
        live: list[Task] = []
        self._serving.clear()
        while waiting or live:
            self._take_all()
            chosen = self._told(waiting) if self._turns.follows else self._chosen(waiting, live)
            if chosen is None:
                self._take(self._waits_for)
                continue
            if chosen not in live and chosen in tasks:
                live.append(chosen)
            self._run(chosen)
            if chosen.done and chosen in live:
                live.remove(chosen)
        return self._leave(merge([task.result for task in tasks]))

    def _leave(self, outputs: list[Any]) -> Outcome[Any]:
        """Ends the step on all ranks."""
        packed = pack(outputs, None, "what the step function returned")
        end = End(self._step, packed.data, self.backward)
        for peer in self._peers():
            self._send(peer, end, packed.tensors)
        self._routing.ended(self._gather)
        self._finish()
        return Outcome(outputs, end.backward)

    def _chosen(self, waiting: list[Task], live: Sequence[Task]) -> Task | None:
        """What the leader runs next."""
        # what other ranks wait for comes first: forward passes as far as they go, then the next microbatch
        task = self._scheduler.next(backward=False)
        most = 1 if self._routing.guard.one_by_one else self._active
        if task is None and waiting and len(live) < most:
            task = waiting.pop(0)
        if task is None and not (self._holds_backward and any(not each.backward for each in live)):
            task = self._scheduler.next(backward=True)
        return task

    def _waits_for(self) -> str:
        absent = [self._ranks[peer] for peer in self._peers() if self._ranks[peer] not in self._serving]
        if absent:
            return (
                f"ranks {absent}, which haven't called this step. Every rank of the pipeline must call it, or be in "
                "smp.barrier() or smp.allgather() meanwhile"
            )
        return "the results of other ranks"


def connect(routing: ModuleRouting, device: torch.device | None) -> Server:
    """This rank's part in the steps of its pipeline, connected with the others. All ranks of the job call it."""
    pipeline, world = state.group("pp"), state.world
    inbox = Inbox()
    own = own_host(os.environ.get("MASTER_ADDR") or "127.0.0.1")
    transport = Transport(world.rank, inbox.put, own, device)
    inbox.reads(transport)
    told = communication.allgather((transport.address, new_token()))
    peers = [rank for rank in (*pipeline.ranks, *state.group("tp").ranks) if rank != world.rank]
    transport.connect(told[0][1], {rank: address for rank, (address, _) in enumerate(told)}, peers)
    return (Leader if pipeline.rank == 0 else Worker)(transport, inbox, routing, device)
