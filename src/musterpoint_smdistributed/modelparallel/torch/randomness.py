"""Random numbers of microbatches that take turns on a rank.

Torch has one generator per device and process. Each microbatch has a stream of its own from its first call of another
rank on, and each call a seed that follows from the caller's stream. So numbers don't depend on who is faster, and a
checkpointed module that runs again gets the same ones, on all ranks it spans.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from typing import Iterator, NamedTuple

import torch


class Stream(NamedTuple):
    """Where the generators of the CPU and of this rank's GPU are."""

    cpu: torch.Tensor
    gpu: torch.Tensor | None

    @classmethod
    def current(cls, device: torch.device | None) -> Stream:
        return cls(torch.get_rng_state(), None if device is None else torch.cuda.get_rng_state(device))

    def resume(self, device: torch.device | None) -> None:
        torch.set_rng_state(self.cpu)
        if self.gpu is not None and device is not None:
            torch.cuda.set_rng_state(self.gpu, device)


def own_device() -> torch.device | None:
    """This rank's GPU, where there is one."""
    if torch.cuda.is_available() and torch.version.cuda:
        return torch.device("cuda", torch.cuda.current_device())
    return None


def begin(seed: int, device: torch.device | None) -> None:
    """A stream from a seed."""
    torch.default_generator.manual_seed(seed)
    if device is not None:
        torch.cuda.manual_seed(seed)


@contextlib.contextmanager
def stream(seed: int, device: torch.device | None) -> Iterator[None]:
    """Inside, random numbers are those of a seed; afterwards they go on as before."""
    with torch.random.fork_rng([] if device is None else [device]):
        begin(seed, device)
        yield


def derive(*parts: object) -> int:
    """A seed out of the current stream, which stays where it is, and what else makes a difference."""
    state = torch.get_rng_state()
    digest = hashlib.blake2b(ctypes.string_at(state.data_ptr(), state.numel()), digest_size=8)
    digest.update(repr(parts).encode())
    return int.from_bytes(digest.digest(), "little") >> 1
