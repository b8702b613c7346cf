"""The rank that runs the step function."""

from __future__ import annotations

from typing import Any, Callable, Sequence, TypeVar

import torch

from .context import Context, default_device
from .messages import End, Start
from .packing import pack
from .scheduler import Task, current
from .server import Alike, Bodies, Merge, Outcome, Server

T = TypeVar("T")


class Leader(Server):
    """Runs the step function, once per microbatch, and has other ranks run their modules."""

    is_leader = True

    def step(
        self, name: str, bodies: Bodies, merge: Merge, began: Callable[[bool], None], alike: Alike
    ) -> Outcome[Any]:
        """As :meth:`.Server.step` says."""
        began(torch.is_grad_enabled())
        with self.failing_together(), alike:
            return self._lead(name, bodies, merge)

    def _lead(self, step: str, bodies: Bodies, merge: Merge) -> Outcome[Any]:
        self._begin()
        context = Context.current()
        self._step += 1
        start = Start(step, self._step, self._met, context, self._routing.training())
        for peer in self._peers():
            self._send(peer, start)
        self._routing.started(step, context.grad)
        device = default_device()
        waiting = [Task(_under(context, device, body), number, goes_on=True) for number, body in enumerate(bodies())]
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
        most = 1 if self._routing.one_by_one else self._active
        if task is None and waiting and len(live) < most:
            task = waiting.pop(0)
        if task is None and not (self._holds_backward and any(not each.backward for each in live)):
            task = self._scheduler.next(backward=True)
        return task

    def pause(self) -> None:
        """Older microbatches' forward passes come first.

        A loss is computed here, and until then the last rank has nothing to do. Modules see the microbatches in their
        order all the same.
        """
        task = current()
        if task is not None and not self._turns.partners and not self._inbox.empty():
            self._scheduler.pause()

    def _waits_for(self) -> str:
        absent = [self._ranks[peer] for peer in self._peers() if self._ranks[peer] not in self._serving]
        if absent:
            return (
                f"ranks {absent}, which haven't called this step. Every rank of the pipeline must call it, or be in "
                "smp.barrier() or smp.allgather() meanwhile"
            )
        return "the results of other ranks"

    def _wait_with_leader(self, work: Any) -> None:
        self._wait_only(work)


def _under(context: Context, device: Any, body: Callable[[], T]) -> Callable[[], T]:
    def run() -> T:
        with device, context.entered():
            return body()

    return run
