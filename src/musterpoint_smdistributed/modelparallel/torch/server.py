"""The module server: what every rank of a pipeline does in a step whose modules are on several ranks.

One rank, the leader (:class:`.leader.Leader`), runs the user's step function, once per microbatch. Where that calls a
module of another rank, an autograd node (:class:`.RemoteCall`) sends the arguments there and gets the results back; in
the backward pass the same node sends the gradients of the results and gets those of the arguments. The other rank
(:class:`.worker.Worker`) runs the module under its own autograd graph, and later that graph backwards. So autograd
itself counts what depends on what: skip connections, modules that are used twice, and modules that call back to the
first rank need nothing special.

While a task waits for another rank the scheduler runs another microbatch.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
import queue
import sys
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Callable, Generic, Iterator, NamedTuple, Sequence, TypeVar

import torch

from . import absent, aliases, log, messages, passes, randomness
from .callee import Callee, spread
from .effects import Given, Known, in_graph
from .errors import SMPPeerLostError, SMPRemoteError, SMPStalledError, SMPStepError, text_of
from .packing import pack, unpack
from .routing import ModuleRouting
from .scheduler import Ahead, Scheduler, Task, current
from .state import state
from .topology import Kind
from .transport import Inbox, Lost, Message, Transport

T = TypeVar("T")
Bodies = Callable[[], Sequence[Callable[[], Any]]]
Merge = Callable[[list[Any]], Any]
Alike = AbstractContextManager[None]

_WITH_LEADER: tuple[Kind | None, ...] = ("world", "mp", "pp")
"""The groups of a rank in which its leader is as well."""
LIMIT = "SMP_TIMEOUT_SECONDS"
"""The variable that says after how long without any message a step fails; 1800, as torch's groups."""


class Outcome(NamedTuple, Generic[T]):
    """How a step ended: what the step function returned for each microbatch, and whether there was a backward pass."""

    outputs: list[T]
    backward: bool


class Exchange:
    """One call from the caller's side, as it goes through autograd; ``results`` until its node has them."""

    def __init__(
        self, server: Server, call: messages.Call, what: str, result: messages.Result, results: Sequence[torch.Tensor]
    ) -> None:
        self.server, self.call, self.what, self.result, self.results = server, call, what, result, results
        self.passed: set[int] = set()
        """Results through which a backward pass has come that doesn't keep the graph."""


class RemoteCall(torch.autograd.Function):
    """The autograd node of a call to another rank. ``anchor`` has it recorded also where no argument needs a gradient,
    since the parameters there do."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, exchange: Exchange, *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.exchange, ctx.count = exchange, len(tensors)
        results, exchange.results = exchange.results, ()
        fixed = [each for each, needed in zip(results, exchange.result.need_gradient) if not needed]
        ctx.mark_non_differentiable(*fixed)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        exchange: Exchange = ctx.exchange
        server, call = exchange.server, exchange.call
        if torch.is_grad_enabled():
            raise SMPStepError(
                f"create_graph=True through {exchange.what}, which is on another rank of the pipeline: gradients of "
                "gradients don't go from rank to rank. Put what they go through on one rank, with the step function "
                "(smp.set_partition(…, 0)), or set partitions to 1"
            )
        task = current()
        if task is None:
            raise SMPStepError(
                f"a backward pass goes through {exchange.what}, which is on another rank of the pipeline, outside of "
                "the step that called it: ask for gradients in the step function"
            )
        if any(each is not None and torch._C._functorch.is_legacy_batchedtensor(each) for each in gradients):
            raise SMPStepError(
                f"is_grads_batched=True through {exchange.what}, which is on another rank of the pipeline: ask for one "
                "gradient after the other"
            )
        server.backward = task.backward = True
        needed = exchange.result.need_gradient
        present = tuple(gradient is not None and need for gradient, need in zip(gradients, needed))
        keeps, some = passes.keeps_graph(), passes.some()
        if not any(present):
            return (None,) * (2 + ctx.count)
        through = {index for index, here in enumerate(present) if here}
        if through & exchange.passed:
            raise SMPStepError(passes.second_time(exchange.what))
        if not keeps:
            exchange.passed |= through
            task.passed.append(exchange.what)
        request = messages.Backward(call, len(call.links) - 1, present, keeps, some, passes.number())
        # those of an embedding with `sparse=True` may be another kind
        sent = [each.to_dense() for each, is_sent in zip(gradients, present) if is_sent and each is not None]
        answer, received = server.ask(call.links[-1].rank, call.id, request, sent)
        return (None, None, *spread(answer.present, received))


class Server(ABC):
    """One rank's part in the steps of its pipeline.

    ``is_leader``: whether it runs the step function. ``in_step``: whether a step runs. ``backward``: whether that has
    begun a backward pass.
    """

    is_leader: bool

    def __init__(self, transport: Transport, inbox: Inbox, routing: ModuleRouting, device: torch.device | None) -> None:
        self._transport, self._inbox, self._routing = transport, inbox, routing
        pipeline, sharing = state.group("pp"), state.group("tp")
        self._ranks, self._rank = pipeline.ranks, pipeline.rank
        partners = [each for each in sharing.ranks if each != state.world.rank]
        self._turns = messages.Turns(partners, sharing.rank == 0, self._send_to)
        # all microbatches go through their forward passes first; else a backward pass runs as soon as it can, and so
        # memory is freed
        self._holds_backward = state.cfg.pipeline == "simple"
        self._active = sys.maxsize if self._holds_backward else state.cfg.active_microbatches
        self._scheduler = Scheduler(device)
        self._callee = Callee(routing, self._send, device)
        self._anchor = torch.zeros((), requires_grad=True)
        self._numbers = itertools.count()
        self._waiting: dict[messages.CallId, Task] = {}
        self._left: dict[int, dict[tuple[int, int], torch.Tensor]] = {}
        """By microbatch, tensors that came as effects of calls, by the call's number and theirs."""
        self._step = 0
        self._met = 0
        self._waited: list[Waited] = []
        self._starts: list[messages.Start] = []
        self._early: list[Message] = []
        self._reports: dict[int, dict[int, bytes]] = {}
        self._serving: set[int] = set()
        self._ends: dict[int, tuple[messages.End, list[torch.Tensor]]] = {}
        self._broken: BaseException | None = None
        self._interrupted: BaseException | None = None
        self._gone: tuple[int, str] | None = None
        self._hint = log.hint_seconds()
        self._limit = float(os.environ.get(LIMIT) or 1800)
        self.backward = False
        self.in_step = False

    @property
    def device(self) -> torch.device | None:
        """This rank's GPU."""
        return self._scheduler.device

    @property
    def _is_over(self) -> bool:
        """Whether the leader has ended the step that runs here."""
        return self._step in self._ends

    @abstractmethod
    def step(
        self, name: str, bodies: Bodies, merge: Merge, began: Callable[[bool], None], alike: Alike
    ) -> Outcome[Any]:
        """Runs a step together with the other ranks of the pipeline.

        Args:
            name: of the step function.
            bodies: makes the calls of the step function, by microbatch; for the leader.
            merge: what all ranks get, from what they return; for the leader.
            began: is told when the step begins, and whether autograd records it.
            alike: what is to be entered by the leader, around the step.
        """

    def wait(self, work: Any, kind: Kind | None) -> None:
        """Waits for one of torch's collectives; a worker meanwhile serves steps that the leader runs alone."""
        together = kind in _WITH_LEADER
        if together and not self.in_step:
            self._wait_with_leader(work)
        else:
            self._wait_only(work)
        self._met += together

    def _wait_only(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise self.failure_of_another(error) from None

    def _wait_with_leader(self, work: Any) -> None:
        """Waits for a collective in which the leader takes part as well."""
        self._wait_only(work)

    def _gather(self, value: Any) -> list[Any]:
        """What each rank of the pipeline says behind this step, in their order."""
        said = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        for peer in self._peers():
            self._send(peer, messages.Report(self._step, said))
        heard = self._reports.setdefault(self._step, {})
        heard[self._rank] = said
        while len(heard) < len(self._ranks):
            self._take(lambda: "the other ranks of the pipeline at the end of the step")
        del self._reports[self._step]
        return [pickle.loads(heard[rank]) for rank in range(len(self._ranks))]

    def _told(self, waiting: list[Task]) -> Task | None:
        """What the first of the ranks that share layers runs, if it can run here already."""
        key = self._turns.next(self._step)
        if key is None:
            return None
        new = bool(waiting) and waiting[0].key == key
        task = waiting.pop(0) if new else self._scheduler.take(key)
        if task is not None:
            self._turns.told.popleft()
        return task

    # ---- calls of modules on other ranks, by tasks

    def call(self, links: Sequence[messages.Link], args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> Any:
        """Runs a chain of links with these arguments, and returns what the last one returns."""
        task = current()
        assert task is not None, "only tasks call other ranks"
        passes.check_transforms(what)
        guard, modules = self._routing.guard, links[0].modules
        given = Given(args, kwargs) if len(links) == 1 else Given((), {})
        brought = guard.brought(modules, given.modules) if len(links) == 1 and modules else ()
        sent = (args, kwargs, given.objects, (), brought)
        packed = pack(sent, self._routing.names, f"an argument of {what}")
        count, originals = 0, list(packed.tensors)
        if brought:  # tensors of graphs that have been freed are brought as values
            first = len(pack(sent[:3], self._routing.names, what).tensors)
            count = len(packed.tensors) - first
            for index, each in enumerate(packed.tensors[first:], first):
                packed.tensors[index] = each if in_graph(each, task.since) else each.detach()
        own = messages.CallId(self._rank, next(self._numbers))
        call = messages.Call(own, tuple(links), self._step, task.microbatch)
        seed = randomness.derive(self._step, task.microbatch, what)
        context = messages.Context.current()
        need = tuple(context.grad and tensor.requires_grad for tensor in packed.tensors)
        request = messages.Forward(call, 0, seed, context, packed.data, need, count)
        with torch.no_grad():
            result, received = self.ask(links[0].rank, call.id, request, packed.tensors)
            # torch frees what a backward pass comes to, so what no result depends on mustn't be linked to the graph
            inputs = [each.detach() if index in result.unused else each for index, each in enumerate(packed.tensors)]
        exchange = Exchange(self, call, what, result, received)
        results = RemoteCall.apply(self._anchor, exchange, *inputs)  # type: ignore[no-untyped-call]
        randomness.begin(seed + len(links), self._scheduler.device)
        kept = len(results) - len(result.changed)
        aliases.write_back(packed.tensors, result.changed, results[kept:], what)
        seen = aliases.made_again(result.views, results[:kept], packed.tensors, what)
        find = functools.partial(self._found, given, originals, task, what)
        value, effects = unpack(result.value, seen, self._routing.names, find)
        if effects:
            if guard.one_by_one and task.microbatch not in self._left:
                self._left.clear()
            left = self._left.setdefault(task.microbatch, {})
            left.update(((call.id.number, index), each) for index, each in enumerate(seen))
            self._routing.arrive(effects, what)
        return value

    def _found(self, given: Given, sent: Sequence[torch.Tensor], task: Task, what: str, known: Known) -> Any:
        """What an object stands for that a call has sent back."""
        try:
            if known.kind == "given":
                return given.find(known.of, known.step)
            if known.kind == "sent":
                return sent[known.of]
            if known.kind == "left":
                return self._left[task.microbatch][known.of]
            return self._routing.guard.held(known.of, known.step)
        except (LookupError, AttributeError, TypeError) as error:
            raise SMPStepError(
                f"{what}, which is on another rank of the pipeline, has changed {known.of} by what this rank doesn't "
                "have. Return it, and hand it on as an argument"
            ) from error

    def ask(self, rank: int, call: messages.CallId, request: Any, tensors: Sequence[torch.Tensor]) -> Any:
        """Sends a request of the current task and lets others run until the answer is there: its body and tensors."""
        task = current()
        assert task is not None
        self._waiting[call] = task
        self._send(rank, request, tensors)
        return self._scheduler.wait()

    def pause(self) -> None:
        """Called between modules, also in backward passes: on the leader older microbatches' forward passes come first.

        A loss is computed there, and until then the last rank has nothing to do. Modules see the microbatches in their
        order all the same.
        """
        task = current()
        if self.is_leader and task is not None and not self._turns.partners and not self._inbox.empty():
            self._scheduler.pause()

    def turn_backward(self) -> None:
        """The current task begins its backward pass."""
        self.backward = True
        task = current()
        if task is not None:
            task.backward = True
            if self._holds_backward:
                self._scheduler.add(task, ("backward", task.microbatch))
                self._scheduler.wait()

    # ---- messages

    def _peers(self) -> list[int]:
        return [rank for rank in range(len(self._ranks)) if rank != self._rank]

    def _send(self, rank: int, body: Any, tensors: Sequence[torch.Tensor] = ()) -> None:
        self._send_to(self._ranks[rank], body, tensors)

    def _send_to(self, rank: int, body: Any, tensors: Sequence[torch.Tensor] = ()) -> None:
        """To a global rank."""
        try:
            self._transport.send(rank, body, tensors)
        except OSError as error:
            self._take_all()  # it may have said why before it ended
            raise self._lost(rank, str(error)) from None

    def _take_all(self) -> None:
        while not self._is_over:  # what comes then is the next step's
            try:
                self._dispatch(self._inbox.get_nowait())
            except queue.Empty:
                return

    def _take(self, waits_for: Callable[[], str] | None) -> None:
        """Waits for the next message. Says what it waits for after a while, and fails in the end."""
        if self._gone is not None and waits_for is not None:
            raise self._lost(*self._gone)
        began = time.monotonic()
        while True:
            try:
                self._dispatch(self._inbox.get(timeout=None if waits_for is None else self._hint))
                return
            except queue.Empty:
                assert waits_for is not None
                waited = time.monotonic() - began
                text = f"rank {self._ranks[self._rank]} has waited {waited:.0f} s for {waits_for()}"
                if waited >= self._limit:
                    raise SMPStalledError(f"{text}; the limit is {LIMIT}={self._limit:.0f}") from None
                log.get_logger().warning(text)

    def _dispatch(self, message: Message) -> None:
        """Turns a message into a task that can run."""
        body, tensors = message.body, message.tensors
        if isinstance(body, (messages.Forward, messages.Backward)) and body.call.step > self._step:
            self._early.append(message)  # another rank has heard of that step before this one
        elif isinstance(body, (messages.Result, messages.Gradients)):
            self._scheduler.add(self._waiting.pop(body.call), ("answer", *body.call), (body, tensors))
        elif isinstance(body, messages.Forward):
            task = Task(functools.partial(self._callee.forward, body, tensors), body.call.microbatch)
            self._scheduler.add(task, ("forward", *body.call.id, body.position))
        elif isinstance(body, messages.Backward):
            self.backward = True
            work = functools.partial(self._callee.backward, body, tensors)
            task = Task(work, body.call.microbatch, backward=True)
            self._scheduler.add(task, ("backward", *body.call.id, body.position))
        elif isinstance(body, messages.Turn):
            self._turns.told.append(body)
        elif isinstance(body, messages.Start):
            self._starts.append(body)
        elif isinstance(body, messages.Started):
            if body.number == self._step:
                self._serving.add(message.sender)
        elif isinstance(body, messages.Routes):
            self._routing.adopt(body.chains)
        elif isinstance(body, messages.End):
            self._ends[body.number] = body, tensors  # of a step that needs nobody it comes before this rank serves
        elif isinstance(body, messages.Report):
            self._reports.setdefault(body.number, {})[self._ranks.index(message.sender)] = body.said
        elif isinstance(body, Waited):
            self._waited.append(body)
        elif isinstance(body, messages.Failed):
            raise SMPRemoteError(body.rank, body.traceback)
        elif isinstance(body, Lost) and message.sender in (*self._ranks, *self._turns.partners):
            if self.in_step:
                raise self._lost(message.sender, body.why)
            self._gone = (message.sender, body.why)  # perhaps through; a collective that needs it fails by itself

    def announce(self, chains: Sequence[Any]) -> None:
        """The leader tells the others which modules run as chains; before any request that uses them."""
        for peer in self._peers():
            self._send(peer, messages.Routes(tuple(chains)))

    def _announce(self, task: Task) -> None:
        self._ahead.runs(task)
        if not self._turns.follows:
            self._turns.announce(self._step, task.key)

    def _run(self, task: Task, others: Callable[[Task], None] | None = None) -> None:
        """Runs a task until it waits or is done; one that is new until it is done, where ``others`` runs the rest."""
        self._announce(task)
        if others is not None and task.is_new:
            self._scheduler.run_here(task, others)
            if self._interrupted is not None:
                raise self._interrupted
        else:
            self._scheduler.run(task)
        if task.done and task.error is not None:
            raise absent.explained(task.error)
        self._routing.guard.ran(task.microbatch)

    def _begin(self) -> None:
        if self._broken is not None:
            raise SMPRemoteError(self._ranks[self._rank], f"an earlier step failed: {self._broken!r}")
        self.in_step, self.backward = True, False
        self._scheduler.begin()
        self._ahead = Ahead(len(self._ranks) - self._rank + 1)

    def _finish(self) -> None:
        """What never got a backward pass is dropped."""
        self._callee.clear()
        self._left.clear()
        self._ends.pop(self._step, None)
        self._scheduler.end()
        self.in_step = False

    @contextlib.contextmanager
    def failing_together(self) -> Iterator[None]:
        """Any exception inside ends the step on all ranks, and the job with an exit code that says so."""
        try:
            yield
        except SystemExit as error:
            self._failed(error)
            if error.code:
                raise
            raise SMPStepError(
                f"sys.exit({error.code!r}) was called in a step on rank {self._ranks[self._rank]}, whose other ranks "
                "go on: a script ends behind a step, on all ranks"
            ) from error
        except BaseException as error:
            self._failed(error)
            raise

    def _failed(self, error: BaseException) -> None:
        """Tells every rank of the job, unless it came from another one; nothing works here any more."""
        first = self._broken is None
        self._broken = self._broken or error
        self.in_step = False
        self._scheduler.clear()
        if first and not isinstance(error, SMPRemoteError):
            said = messages.Failed(self._ranks[self._rank], text_of(error))
            others = [rank for rank in range(state.world.topology.world) if rank not in self._ranks]
            for rank in [*(self._ranks[peer] for peer in self._peers()), *others]:
                self._transport.tell(rank, said)

    def failure_of_another(self, error: BaseException, seconds: float = 10) -> BaseException:
        """What another rank says of its failure, where a connection only broke; else ``error``."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                item = self._inbox.get(timeout=0.05)
            except queue.Empty:
                continue
            if isinstance(item.body, messages.Failed):
                return SMPRemoteError(item.body.rank, item.body.traceback)
        return error

    def _lost(self, rank: int, why: str) -> BaseException:
        error = SMPPeerLostError(f"rank {rank} has ended, or its connection to rank {self._ranks[self._rank]}: {why}")
        return self.failure_of_another(error, 0.5)


class Waited(NamedTuple):
    """A collective has ended."""

    error: BaseException | None
