"""One host's roll call as a program: ``python rollcall_host.py ME SETTINGS``, SETTINGS as JSON.

Writes what happens as JSON lines (``{"what": "mustered"|"failed"|"said"|<an event's name>, …}``) and takes calls of
the peers as lines: ``arrive POINT`` (``Arrived`` when all hosts have), ``done CODE``, ``leave``, and as JSON lists
the arguments of ``start``, ``started`` and ``start_ended``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from musterpoint.base.errors import MusterError
from musterpoint.base.loop import READ, Loop
from musterpoint.base.settings import Settings
from musterpoint.core.channel.peers import PeerEvent
from musterpoint.core.channel.topics import start_requests
from musterpoint.core.channel.topics.consultations import TOPIC, Answer, Ask
from musterpoint.core.ports import Ports
from musterpoint.core.rollcall.roll_call import RollCall
from musterpoint.core.rollcall.roster import Offer, Participant


def write(what: str, **facts: Any) -> None:
    print(json.dumps({"what": what, "at": round(time.monotonic(), 3), **facts}), flush=True)


def main(me: str, given: dict[str, Any]) -> None:
    loop = Loop()
    hosts = tuple(given.pop("hosts"))
    offer = Offer(given.pop("job", "job"), "torchrun", 2, "0.1", 2)
    settings = Settings(**given)
    participant = Participant(hosts, hosts, me, offer, settings)
    roll_call = RollCall(loop, participant, lambda text: write("said", text=text), lambda name, **facts: None, Ports())
    loop.prepare_posts()  # a handler alone wouldn't wake the loop, which may have no timer
    signal.signal(signal.SIGTERM, lambda *_: loop.post(lambda: roll_call.stop(15) and None))
    try:
        roster, peers = roll_call.run()
    except MusterError as error:
        write("failed", kind=type(error).__name__, text=str(error))
        return
    addresses = [seat.address for seat in roster.seats]
    write("mustered", addresses=addresses, master=roster.master_address, rank=roster.node_rank)

    def on_event(event: PeerEvent) -> None:
        write(type(event).__name__, event=[list(part) if isinstance(part, tuple) else part for part in event])

    def on_input(_ready: int) -> None:
        for line in os.read(0, 65536).decode().splitlines():
            word, _, rest = line.partition(" ")
            if word == "leave":
                loop.stop()
            elif word.startswith("start"):
                arguments = json.loads(rest)
                getattr(peers.topic(start_requests.TOPIC), word)(
                    *(tuple(one) if isinstance(one, list) else one for one in arguments)
                )
            elif word == "arrive":
                ask, decide = Ask(rest, "{}"), lambda _all, point=rest: Answer(point, "")
                peers.topic(TOPIC).consult(ask, decide, lambda answer: write("Arrived", event=answer), 600.0)
            else:
                getattr(peers, word)(int(rest) if word == "done" else rest)

    peers.listen(on_event)
    loop.watch(0, READ, on_input)
    loop.run()
    peers.close()
    write("left")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
