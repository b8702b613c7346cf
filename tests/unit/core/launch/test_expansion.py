"""``$LOCAL_RANK`` in a program's arguments: by the plan where it knows the rank, by the stub elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.host_plan import EXPANDED as NAMES
from musterpoint.core.launch.host_plan import expand, expanded
from musterpoint.core.launch.launch_plan import LaunchPlan, ProcessPlan, program_arguments
from musterpoint.embedded.programs.registry import text_of

VALUES = {"RANK": "5", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.4", "NODE_RANK": "2"}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("$LOCAL_RANK", "1"),
        ("--local_rank=${LOCAL_RANK}", "--local_rank=1"),
        ("tcp://$MASTER_ADDR:$MASTER_PORT", "tcp://10.0.0.4:$MASTER_PORT"),
        ("$RANKING ${RANK}ING $RANK_ $LOCAL_RANKS", "$RANKING 5ING $RANK_ $LOCAL_RANKS"),
        ("$NODE_RANK/$RANK/$HOME", "2/5/$HOME"),
        ("$$RANK", "$5"),
    ],
)
def test_words(word: str, expected: str) -> None:
    assert expanded(word, VALUES) == expected


def stubs() -> dict[str, object]:
    """The stub's functions, as it has them."""
    scope: dict[str, object] = {}
    text = text_of("rank_stub")
    exec(text[: text.rindex("main()")], scope)
    return scope


@given(
    st.text(alphabet="$A{}_RANKLOC1 ", max_size=30) | st.lists(st.sampled_from([f"${n}" for n in NAMES])).map("x".join)
)
def test_the_stub_does_the_same(word: str) -> None:
    stub = STUB
    found = word
    for name in NAMES:
        if name in VALUES:
            found = stub["replaced"](found.replace("${" + name + "}", VALUES[name]), name, VALUES)  # type: ignore[operator]
    assert found == expanded(word, VALUES)


STUB = stubs()


def test_the_stub_knows_the_same_names() -> None:
    assert STUB["EXPANDED"] == NAMES
    for at, name in enumerate(NAMES):
        assert not any(later.startswith(name) for later in NAMES[at + 1 :]), name


def test_a_plan() -> None:
    words = program_arguments(("python", "train.py", "--rank", "$RANK"))
    rank = ProcessPlan("rank", "rank 5", words, (EnvSetting("RANK", "5", ""),))
    agent = ProcessPlan("launcher", "torchrun", words)
    plan = LaunchPlan("ranks", "a", (rank, agent), (), 1, 1, 0, "/")
    made = expand(plan, {})
    assert [process.words[-1] for process in made.processes] == ["5", "$RANK"]
    assert made.expands
    assert not expand(plan._replace(processes=(ProcessPlan("rank", "r", words[:2]),)), {}).expands
