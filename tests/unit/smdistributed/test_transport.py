"""Messages between two ends in one process: objects, tensors in any layout, and who may connect."""

from __future__ import annotations

import queue
import socket
import threading
from typing import Any, Iterator

import pytest

from .conftest import Modules

pytestmark = pytest.mark.torch

Ends = tuple[Any, Any, Any, Any]


@pytest.fixture
def ends(modelparallel: Modules) -> Iterator[Ends]:
    """Two connected transports of ranks 4 and 7, and what each receives."""
    transport = modelparallel("torch.transport")
    inboxes = [modelparallel("torch.transport").Inbox() for _ in range(2)]
    one, two = (transport.Transport(rank, inbox.put, "127.0.0.1") for rank, inbox in zip((4, 7), inboxes))
    for inbox, reader in zip(inboxes, (one, two)):
        inbox.reads(reader)
    addresses = {4: one.address, 7: two.address}
    token = transport.new_token()
    two_first = threading.Thread(target=two.connect, args=(token, addresses, [4]))
    two_first.start()
    one.connect(token, addresses, [7])
    two_first.join()
    yield one, two, *inboxes
    one.close()
    two.close()


def test_tensors_arrive_as_they_were(ends: Ends, torch: Any) -> None:
    _, two, inbox, _ = ends
    x = torch.arange(24.0).reshape(2, 3, 4)
    tensors = [
        x,
        x.transpose(0, 2),
        x[:, 1:],
        x[0, 0].expand(5, 4),
        torch.empty(0, 3),
        torch.tensor(True),
        x.to(torch.bfloat16),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.complex(x, x).conj(),
        x.to(torch.int8),
        torch.randn(300_000),
    ]
    two.send(4, ("body", [1]), tensors)
    sender, body, received = inbox.get(timeout=500)
    assert sender == 7 and body == ("body", [1])
    for sent, got in zip(tensors, received):
        assert torch.equal(sent, got) and sent.dtype == got.dtype
    assert received[1].stride() == tensors[1].stride() and not received[1]._is_view()
    assert received[7].is_contiguous(memory_format=torch.channels_last)


def test_an_end_is_said_once_and_others_may_tell(ends: Ends) -> None:
    one, two, inbox, others = ends
    one.tell(7, "over the connection")
    assert others.get(timeout=500).body == "over the connection"
    two.close()
    assert type(inbox.get(timeout=500).body).__name__ == "Lost"
    one.tell(7, "nobody is there")
    one.tell(4, "to itself, over a connection of its own")
    said = inbox.get(timeout=500)
    assert (said.sender, said.body) == (4, "to itself, over a connection of its own")


def test_who_waits_hears_of_what_others_put(ends: Ends) -> None:
    _, _, inbox, _ = ends
    with pytest.raises(queue.Empty):
        inbox.get(timeout=0.01)
    later = threading.Timer(0.1, inbox.put, ["of a thread"])
    later.start()
    assert inbox.get(timeout=500) == "of a thread"
    later.join()


def test_large_messages_arrive_while_nobody_looks_and_small_ones_keep_their_order(ends: Ends, torch: Any) -> None:
    one, two, inbox, others = ends
    large = torch.arange(8_000_000.0)
    for each in (one, two):  # at the same time: each would wait for ever for the other's memory
        sent = [each.send(7 if each is one else 4, number, [large] if number == 1 else []) for number in range(3)]
        assert sent == [None] * 3
    for box in (inbox, others):
        messages = [box.get(timeout=500) for _ in range(3)]
        assert [message.body for message in messages] == [0, 1, 2]
        assert torch.equal(messages[1].tensors[0], large)


def test_what_the_script_has_switched_on_where_it_waits_changes_no_message(ends: Ends, torch: Any) -> None:
    _, two, inbox, _ = ends
    two.send(4, "body", [torch.arange(3.0)])
    with torch.device("meta"), torch.inference_mode():
        (received,) = inbox.get(timeout=500).tensors
    assert received.device.type == "cpu" and not received.is_inference()
    assert received.tolist() == [0, 1, 2]


def test_messages_carry_contexts_and_calls_as_they_are(modelparallel: Modules, ends: Ends, torch: Any) -> None:
    _, two, inbox, _ = ends
    messages, context = modelparallel("torch.messages"), modelparallel("torch.messages")
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        current = context.Context.current()
    links = (messages.Link(1, ("module", "a")), messages.Link(2, ("again", ("b", "c"), True)))
    body = messages.Forward(messages.Call(messages.CallId(0, 7), links, 3, 1), 1, 99, current, b"", (True, False))
    for _ in range(2):
        two.send(4, body)
        received = inbox.get(timeout=500).body
        assert received == body and type(received.call.links[1]) is messages.Link
        assert type(received.context.autocast[0]) is context.Autocast


def test_strangers(modelparallel: Modules, ends: Ends) -> None:
    one, _, inbox, _ = ends
    transport = modelparallel("torch.transport")
    with pytest.raises(OSError, match="doesn't know this job's token"):
        transport._dial(3, one.address, b"another job's", 20)
    with socket.create_connection(one.address, timeout=500) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: a-name-of-some-length\r\n\r\n")
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(1000):
            pass  # its greeting, then the end
    assert inbox.empty()


def test_packing(modelparallel: Modules, torch: Any) -> None:
    packing = modelparallel("torch.packing")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    names = packing.Names(model)
    x = torch.ones(3)
    value = {"a": [x, (x, 1)], "weight": model[1].weight, "module": model[0], "none": None}
    packed = packing.pack(value, names, "it")
    assert len(packed.tensors) == 1 and packed.tensors[0] is x
    again = packing.unpack(packed.data, [x * 2], names)
    assert again["a"][0] is again["a"][1][0] and again["a"][0].sum() == 6
    assert again["weight"] is model[1].weight and again["module"] is model[0]
    with pytest.raises(modelparallel("torch.errors").SMPStepError, match="it can't be sent to another rank"):
        packing.pack([lambda: None], names, "it")
