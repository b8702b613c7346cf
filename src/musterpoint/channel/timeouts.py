"""Every length of time the roll call and its channel know, in seconds; tests shorten them."""

from typing import NamedTuple


class Timeouts(NamedTuple):
    """When a quiet or broken connection means what, and how long each step may take.

    A 60 s network blip turns one TCP connection into 113 s of silence, so silence alone is no death; a resolver that
    drops its answers takes 10 s a look-up; a first SYN that is lost is sent again after 1 s.

    ``beat``: between two beats.
    ``silence``: without any byte for this long a host is silent.
    ``cut``: how long a closed connection may stay away before the host is lost.
    ``hold``: how long a mere symptom of failure waits for its cause.
    ``patience``: the same where a program that starts ranks by itself may still be ending (torchrun: 30 s).
    ``mismatch``: how long a host with an unexpected address waits for one with the expected.
    ``sign_of_life``: how long a host may take to answer when another process says that it is that host, started anew.
    ``hello``, ``connect``: one try of each.
    ``retry``, ``retry_most``: the shortest and the longest pause between two tries.
    ``progress``: the least time between two progress lines.
    ``flush``: the most that leaving may take.
    ``stop_notice``: how long a host that was told to stop stays to pass that on, and less than the ten seconds after
    which ``docker stop`` kills.
    """

    beat: float = 5.0
    silence: float = 15.0
    cut: float = 10.0
    hold: float = 2.0
    patience: float = 35.0
    mismatch: float = 10.0
    sign_of_life: float = 5.0
    hello: float = 5.0
    connect: float = 3.0
    retry: float = 0.05
    retry_most: float = 2.0
    progress: float = 10.0
    flush: float = 1.0
    stop_notice: float = 8.0
