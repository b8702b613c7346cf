"""One end of a stream of messages between two ranks: a Python object and tensors each.

Tensors go from memory to memory without pickle; those of a GPU go over the CPU's memory, and arrive on the receiver's
GPU. Any thread may read; what one has begun another goes on with.
"""

from __future__ import annotations

import contextlib
import ctypes
import pickle
import select
import socket
import struct
import threading
from typing import Any, Callable, Generator, Iterator, Sequence

import torch
from torch.utils._python_dispatch import _disable_current_modes

HEADER = struct.Struct("<Q")
LARGEST_AT_ONCE = 64
"""Buffers that one system call takes; the kernel's limit is 1024."""
AHEAD = 1 << 16
"""Bytes that are read at once, where it isn't known how long a message is."""
Deliver = Callable[[Any, "list[torch.Tensor]"], None]
"""Takes a message: its body and its tensors."""
Received = tuple[Any, "list[torch.Tensor]"]
_Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...], bool]
"""How a tensor lies in memory: its type, its sizes, its strides, and whether that is a GPU's."""


class Connection:
    """One end."""

    def __init__(self, connected: socket.socket, device: torch.device | None) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(None)
        self.socket, self._device = connected, device
        self._sending, self._reading = threading.Lock(), threading.Lock()
        self._ahead = memoryview(bytearray(AHEAD))
        self._known = self._ahead[:0]
        self._is_dry = False
        self._stream = self._messages()
        self._over: BaseException | None = None

    def send(self, body: Any, tensors: Sequence[torch.Tensor]) -> None:
        """Returns when the message is on its way."""
        plain = [_plain(tensor) for tensor in tensors]
        head = pickle.dumps((body, [layout for layout, _ in plain]), protocol=pickle.HIGHEST_PROTOCOL)
        buffers = [memoryview(HEADER.pack(len(head)) + head)]
        buffers += [_memory(tensor) for _, tensor in plain if tensor.numel()]
        with self._sending:
            _send_all(self.socket, buffers)

    def read(self, deliver: Deliver, waits: bool = True) -> None:
        """Delivers the messages that have come, without waiting for more.

        ``waits``: for another thread that reads; else that one delivers them. Raises EOFError where the other end has
        closed the connection, and OSError where it is broken.
        """
        if not self._reading.acquire(blocking=waits):
            return
        try:
            if self._over is not None:
                raise self._over
            for message in self._stream:
                if message is None:
                    return
                deliver(*message)
        except BaseException as error:
            self._over = error  # there is no way on in the stream
            raise
        finally:
            self._reading.release()

    def wakes_at(self, size: int) -> None:
        """Who waits for this connection wakes when so many bytes have come, or when it has ended."""
        with contextlib.suppress(OSError):  # closed
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the peer was first
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _messages(self) -> Generator[Received | None, None, None]:
        """One message after the other; None where the next one hasn't come yet, or not all of it."""
        header = bytearray(HEADER.size)
        while True:
            yield from self._fill(memoryview(header))
            head = bytearray(HEADER.unpack(header)[0])
            yield from self._fill(memoryview(head))
            body, layouts = pickle.loads(head)
            tensors = []
            for dtype, shape, stride, on_gpu in layouts:
                with _by_itself():
                    tensors.append(torch.empty_strided(shape, stride, dtype=dtype, device="cpu"))
                    memory = _memory(tensors[-1])
                yield from self._fill(memory)
                if on_gpu and self._device is not None:
                    with _by_itself():
                        tensors[-1] = tensors[-1].to(self._device)
            yield body, tensors
            del body, layouts, tensors  # not to be kept until the next one comes

    def _fill(self, target: memoryview) -> Generator[None, None, None]:
        while target:
            if not self._known:
                if self._is_dry:  # a shorter answer than asked for: the next call would find nothing
                    self._is_dry = False
                    yield
                direct = len(target) >= AHEAD
                asked = target if direct else self._ahead
                try:
                    count = self.socket.recv_into(asked, 0, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    yield
                    continue
                if not count:
                    raise EOFError
                self._is_dry = count < len(asked)
                if direct:
                    target = target[count:]
                    continue
                self._known = self._ahead[:count]
            size = min(len(target), len(self._known))
            target[:size] = self._known[:size]
            target, self._known = target[size:], self._known[size:]


def waiter(connected: socket.socket) -> Callable[[], Any]:
    """A function that waits until there is something to read. Of several threads that do, one wakes: the one whose
    waiter was made first, if it waits."""
    if not hasattr(select, "EPOLLEXCLUSIVE"):  # elsewhere than Linux
        poll = select.poll()
        poll.register(connected, select.POLLIN)
        return poll.poll
    own = select.epoll()
    own.register(connected, select.EPOLLIN | select.EPOLLEXCLUSIVE)
    return own.poll


def is_one_piece(tensor: torch.Tensor) -> bool:
    """Whether its elements are one piece of memory, in whatever order: then it arrives with its own strides."""
    if tensor.is_contiguous():
        return True
    strides, sizes = tensor.stride(), tuple(tensor.shape)
    order = sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], -sizes[dim]))
    return tensor.permute(order).is_contiguous()


def once(tensor: torch.Tensor) -> torch.Tensor:
    """A view that has each element of an expanded tensor once: torch writes to no other."""
    for dim, step in enumerate(tensor.stride() if tensor.layout is torch.strided else ()):
        tensor = tensor if step else tensor.narrow(dim, 0, min(tensor.shape[dim], 1))
    return tensor


@contextlib.contextmanager
def _by_itself() -> Iterator[None]:
    """Torch without what the script has switched on in this thread: who waits may be in the middle of anything."""
    with contextlib.ExitStack() as stack:
        if torch._C._len_torch_function_stack():  # as a default device
            stack.enter_context(torch._C.DisableTorchFunction())
        if torch._C._len_torch_dispatch_stack():
            stack.enter_context(_disable_current_modes())
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        yield


def _plain(tensor: torch.Tensor) -> tuple[_Layout, torch.Tensor]:
    """The tensor so that its elements are one piece of memory, which is in the order that its strides say."""
    if tensor.is_cpu and not tensor.is_conj() and not tensor.is_neg() and tensor.is_contiguous():
        return (tensor.dtype, tuple(tensor.shape), tensor.stride(), False), tensor
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if not is_one_piece(tensor):
        tensor = tensor.contiguous()
    return (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.is_cuda), tensor.cpu()


def _memory(tensor: torch.Tensor) -> memoryview:
    """The tensor's bytes, for as long as the tensor is held."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


def _send_all(connected: socket.socket, buffers: list[memoryview]) -> None:
    while buffers:
        sent = connected.sendmsg(buffers[:LARGEST_AT_ONCE])
        while buffers and sent >= len(buffers[0]):
            sent -= len(buffers[0])
            del buffers[0]
        if buffers:
            buffers[0] = buffers[0][sent:]
