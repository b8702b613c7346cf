"""Every length of time the roll call and its channel know, in seconds; tests shorten them."""

from typing import NamedTuple


class Timeouts(NamedTuple):
    """A 60 s network blip turns one TCP connection into 113 s of silence, so silence alone is no death; a resolver that
    drops its answers takes 10 s a look-up; a first SYN that is lost is sent again after 1 s.

    ``beat`` is the time between two signs of life. ``silence`` without any is silent; ``cut`` is how long a closed
    connection may stay away. ``telling`` is how long a host that was told to stop waits for others to tell it to, and
    less than the ten after which ``docker stop`` kills. ``hold`` is how long a mere symptom of failure waits for the
    cause, ``patience`` how long where a program that starts ranks by itself may still be ending (torchrun: 30 s).
    ``mismatch`` is how long a host with an unexpected address waits for one with the expected; ``asked`` is how
    long a host may take to answer when somebody else says that it is that host, started anew. ``hello`` and
    ``connect`` bound one try; ``retry`` to ``retry_most`` is the time between two. ``say`` is the least time between
    two progress lines, ``flush`` the most that leaving may take.
    """

    beat: float = 5.0
    silence: float = 15.0
    cut: float = 10.0
    hold: float = 2.0
    patience: float = 35.0
    mismatch: float = 10.0
    asked: float = 5.0
    hello: float = 5.0
    connect: float = 3.0
    retry: float = 0.05
    retry_most: float = 2.0
    say: float = 10.0
    flush: float = 1.0
    telling: float = 8.0
