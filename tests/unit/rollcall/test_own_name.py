"""What a host may say of its own name."""

from __future__ import annotations

import pytest

from musterpoint.channel.names import Answer
from musterpoint.rollcall.attendance import UNANSWERED, oddities


@pytest.mark.parametrize(
    ("own", "over", "said"),
    [
        (UNANSWERED, False, []),
        (UNANSWERED, True, ["warning: on algo-1 its own name: the name was not answered yet"]),
        (Answer((), "no such name"), False, ["warning: on algo-1 its own name: no such name"]),
        (Answer(("127.0.0.1",)), True, []),
        (
            Answer(("198.51.100.7",)),
            False,
            ["warning: algo-1 resolves to 198.51.100.7 here, which is none of its addresses"],
        ),
    ],
)
def test_oddities(own: Answer, over: bool, said: list[str]) -> None:
    assert oddities("algo-1", own, over) == said
