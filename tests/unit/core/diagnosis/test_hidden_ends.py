"""What a rank that ended with 0 has hidden: failed programs of its script, and worlds that aren't the job's."""

from __future__ import annotations

import pytest

from musterpoint.core.diagnosis import ProgramEnd, ScriptEnd
from musterpoint.core.supervise.hidden_work import left_behind
from musterpoint.core.supervise.programs_below import NestedWorld, are_separate

T = ProgramEnd(1, "python3 t.py")
OK = ProgramEnd(2, "python3 ok.py", 0)
BOOM = T._replace(status=1)
BESIDE = (BOOM._replace(beside=frozenset({1, 2})), OK._replace(beside=frozenset({1, 2})))


@pytest.mark.parametrize(
    ("programs", "script", "hidden"),
    [
        ((BOOM,), "python3 t.py 2>&1 | tee log", True),
        ((BOOM,), 'python3 t.py | tee log\necho "ended with $?"', True),  # tee's
        ((T._replace(status=-9),), "python3 t.py | tee log", True),
        ((T._replace(error="ValueError: x"),), "python3 t.py; echo done", True),  # a kernel that tells no status
        (BESIDE, "set -euo pipefail\npython3 t.py &\npython3 ok.py &\nwait", True),
        ((OK, BOOM), "python3 ok.py; export X=$(python3 t.py)", True),
        ((OK,), "python3 ok.py | tee log", False),
        ((BOOM, OK), "python3 t.py; python3 ok.py", False),  # the program went on
        ((BOOM, BOOM._replace(pid=3), OK), "python3 t.py; python3 ok.py", False),
        ((BOOM,), "python3 t.py\nrc=$?", False),
        ((BOOM,), "python3 t.py | cat; exit ${PIPESTATUS[0]}", False),
        ((BOOM,), "python3 t.py || true", False),
        ((BOOM,), "if python3 t.py; then echo yes; fi", False),
        ((T._replace(status=-13),), "python3 t.py | head -1", False),
        ((T._replace(status=1, error="BrokenPipeError: [Errno 32] Broken pipe"),), "python3 t.py | head -1", False),
        ((T._replace(runs=True),), "python3 t.py &", False),
        (BESIDE, "python3 t.py & trap 'kill $!' EXIT; python3 ok.py", False),  # a server for the program
        ((T._replace(status=-15),), "timeout 9 python3 t.py | cat", False),
    ],
)
def test_a_code_is_hidden_where_nothing_looks_at_it(
    programs: tuple[ProgramEnd, ...], script: str, hidden: bool
) -> None:
    assert (ScriptEnd(programs, script).hidden is not None) == hidden


@pytest.mark.parametrize(
    ("left", "programs", "is_script", "told"),
    [
        ({1: "t"}, (T._replace(runs=True),), True, ["t"]),
        ({1: "t"}, (), True, ["t"]),  # setsid: the script ended before anybody looked
        ({1: "t"}, (T._replace(runs=True), OK), True, []),  # a helper beside the program
        ({1: "t"}, (), False, []),  # a daemon of a Python's
    ],
)
def test_a_helper_that_is_left_is_no_training(
    left: dict[int, str], programs: tuple[ProgramEnd, ...], is_script: bool, told: list[str]
) -> None:
    assert left_behind(left, programs, is_script) == told


@pytest.mark.parametrize(
    ("found", "planned", "separate"),
    [
        ({0: (2, {0, 1}), 1: (2, {0, 1})}, 2, True),
        ({1: (2, {1})}, 4, True),
        ({1: (2, {0, 1})}, 2, True),  # one rank on each host
        ({0: (2, {0}), 1: (2, {1})}, 2, False),  # torchrun with $NODE_RANK: one world
        ({0: (2, {0, 1})}, 4, False),  # rank 0 alone, on purpose
        ({1: (4, {2, 3})}, 2, False),
    ],
)
def test_worlds_below_ranks(found: dict[int, tuple[int, set[int]]], planned: int, separate: bool) -> None:
    worlds = {rank: NestedWorld("torchrun", size, frozenset(ranks)) for rank, (size, ranks) in found.items()}
    assert are_separate(worlds, planned) == separate
