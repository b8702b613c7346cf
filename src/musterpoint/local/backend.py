"""What every way of making hosts on this machine offers. :mod:`~musterpoint.local.choose_backend` picks one."""

from __future__ import annotations

from typing import Callable, Literal, Mapping, Protocol, Sequence, get_args

BackendName = Literal["process", "netns", "docker"]
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)


class Running(Protocol):
    """A started host."""

    def poll(self) -> int | None:
        """Its entry point's exit code (negative: a signal), or None as long as it runs."""

    def wait(self) -> int:
        """Its entry point's exit code, once it has ended."""


class Backend(Protocol):
    """The hosts of one run. Used as ``open``, then ``start`` once per host, then ``close``; from the main thread only.

    ``name``: what ``--backend`` calls it.
    ``about``: half a sentence for people on how the hosts are made.
    ``shares_python``: whether the hosts have this machine's Python, packages and paths; the links in a host's tree then
    lead to the user's files.
    ``addresses``: host names → numeric addresses, once the hosts have started.
    """

    name: BackendName
    about: str
    shares_python: bool
    addresses: dict[str, str]

    def open(self, on_end: Callable[[], None]) -> None:
        """Makes the hosts, without anything running on them. A UsageError says what this machine lacks.

        ``on_end`` is called, from any thread, when a host has ended that isn't a child of this process.
        """

    def inherited(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What a host has of the caller's environment."""

    def environment(self, host: str) -> dict[str, str]:
        """The variables this way of making hosts calls for on ``host``."""

    def start(self, host: str, argv: Sequence[str], env: Mapping[str, str], stdin: int, output: int) -> Running:
        """Starts ``host`` with ``argv`` as its entry point; ``output`` is its stdout and stderr.

        The returned handle ends when the host does, and then no process of the host is left.
        """

    def signal(self, host: str, signo: int) -> None:
        """Signals the host's entry point, and nothing else of it."""

    def kill(self, host: str) -> None:
        """Kills everything on the host, like pulling its plug."""

    def out_of_memory(self, host: str) -> bool:
        """Whether the host as a whole was killed for using more memory than there is."""

    def close(self) -> None:
        """Kills what still runs and gives everything back. May be called at any time, any number of times."""
