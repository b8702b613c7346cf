"""Timeouts of the roll call and the channel that are no options, in seconds; tests shorten them."""

from musterpoint.base.records import NamedTuple


class Timeouts(NamedTuple):
    """How long each step may take, and after how long a silent or broken connection means a lost host.

    A 60 s network blip turns one TCP connection into 113 s of silence, so short silence proves nothing; a resolver that
    drops its answers takes 10 s a look-up; a first SYN that is lost is sent again after 1 s.

    ``beat``: between two beats.
    ``silence``: after this long without any byte a host counts as silent.
    ``cut``: how long a closed connection may stay away before the host is lost.
    ``hold``: how long a symptom waits for its cause.
    ``order``: how long a cause waits for one that happened before it on another host, and is told later.
    ``patience``: the same where a program that starts ranks by itself may still be ending (torchrun: 30 s).
    ``mismatch``: how long a caller from an unexpected address waits for one from the expected address.
    ``sign_of_life``: how long a host may take to answer when another process claims to be that host, restarted.
    ``hello``, ``connect``: one try of each at most (one to connect is up to a third shorter, by chance).
    ``retry``, ``retry_most``: the shortest and the longest pause between two tries (up to a half shorter, by chance).
    ``progress``: the least time between two progress lines.
    ``flush``: the most that leaving may take.
    ``confirm``: how long the leader stays for a host that reconnects and doesn't know yet that the job is over.
    ``stop_notice``: how long a stopped host stays to tell the others; less than the 10 s of ``docker stop``.
    """

    beat: float = 5.0
    silence: float = 15.0
    cut: float = 10.0
    hold: float = 2.0
    order: float = 0.05
    patience: float = 35.0
    mismatch: float = 10.0
    sign_of_life: float = 5.0
    hello: float = 5.0
    connect: float = 3.0
    retry: float = 0.05
    retry_most: float = 2.0
    progress: float = 10.0
    flush: float = 1.0
    confirm: float = 5.0
    stop_notice: float = 8.0

    @property
    def late(self) -> float:
        """After this long without any byte at least one beat is missing."""
        return min(1.5 * self.beat, self.silence)

    @property
    def ending(self) -> float:
        """After this long without any byte a host is given up while the job ends. It was dialled before: after a cut
        of 10 s that began just before a beat, a new connection is there by then.
        """
        return self.silence * 4 / 3
