"""Who is named when a host falls silent: pure rules, the same at both ends of a connection.

Silence alone doesn't tell who failed. Where this host goes on hearing others, it was the silent one; where it hears
nobody, it is this host that is cut off; where there is nobody else to hear, both ends and what is between them are
named, in the same words on both sides.
"""

from __future__ import annotations

from typing import Sequence

from musterpoint.peers import PeerLost


def of_silence(
    me: str, peer: str, seconds: float, heard: Sequence[str] = (), unheard: Sequence[str] = ()
) -> PeerLost:  # fmt: skip
    """The loss of ``peer``, which ``me`` has not heard for ``seconds``. The other hosts that ``me`` has connections to
    were ``heard`` meanwhile, or not.
    """
    if heard:
        others = heard[0] if len(heard) == 1 else f"{len(heard)} other hosts"
        return PeerLost(peer, f"nothing was heard of it for {seconds:g} s, while {others} went on answering")
    if unheard:
        return PeerLost(me, f"it has heard none of the other {len(unheard) + 1} hosts for {seconds:g} s")
    why = f"nothing came through for {seconds:g} s: one of them stands still, or the network between them is cut"
    return PeerLost(peer, why, apart_from=me)
