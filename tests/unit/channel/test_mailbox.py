from __future__ import annotations

import pytest

from musterpoint.channel.session import Mailbox
from musterpoint.channel.wire import WireError


def test_messages_are_kept_until_acknowledged() -> None:
    box = Mailbox()
    for data in (b"a", b"b", b"c"):
        box.put(data)
    assert box.unacknowledged() == [b"a", b"b", b"c"]
    box.acknowledge(2)
    box.acknowledge(1)  # an old count says nothing new
    assert box.unacknowledged() == [b"c"]
    box.put(b"d")
    box.acknowledge(4)
    assert box.unacknowledged() == []


@pytest.mark.parametrize("count", [1, 99])
def test_nobody_has_what_was_never_sent(count: int) -> None:
    with pytest.raises(WireError):
        Mailbox().acknowledge(count)
