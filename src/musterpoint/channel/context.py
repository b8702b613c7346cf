"""What the roll call and the channel are built on."""

from typing import NamedTuple

from musterpoint.channel.connection_log import ConnectionLog
from musterpoint.channel.timeouts import Timeouts
from musterpoint.loop import Loop


class Context(NamedTuple):
    """What every connection of a host shares.

    ``loop`` is the event loop of this process, ``timeouts`` every length of time, ``log`` takes what is printed and
    recorded of connections.
    """

    loop: Loop
    timeouts: Timeouts
    log: ConnectionLog
