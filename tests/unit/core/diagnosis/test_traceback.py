"""Every exception in a tail is found, with its frames, rank and place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.diagnosis.traceback import Frame, is_noise, lines_of, parse
from musterpoint.core.processes.tail import left_out

TAILS = {path.stem: path.read_bytes() for path in (Path(__file__).parent / "tails").glob("*.txt")}


def texts(name: str) -> list[str]:
    return [raised.text for raised in parse(lines_of(TAILS[name]))]


def test_a_chain_is_two_exceptions() -> None:
    first, second = parse(lines_of(TAILS["cause"]))
    assert (first.text, first.chained) == ("KeyError: 'lr'", False)
    assert (second.text, second.chained) == ("ValueError: the configuration lacks lr", True)
    assert second.frames[0] == Frame("/opt/ml/code/cause.py", 5, "<module>", "load()")


def test_frames_go_on_behind_a_gap_wherever_it_cuts() -> None:
    frame = '  File "/opt/ml/code/train.py", line 7, in one\n    other(depth + 1)\n    ~~~~~^^^^^^^^^^^\n'
    text = "Traceback (most recent call last):\n" + frame * 20 + "RecursionError: too deep\n"
    for first in range(len(frame)):
        for second in range(0, len(frame), 7):
            begin, end = 200 + first, 1000 + second
            cut = text[:begin].encode() + left_out(end - begin) + text[end:].encode()
            (raised,) = parse(lines_of(cut))
            assert (raised.text, raised.start, raised.frames[0].line) == ("RecursionError: too deep", 0, 7), cut


def test_a_group_gives_itself_and_its_members() -> None:
    group, first, second = parse(lines_of(TAILS["group"]))
    assert group.name == "ExceptionGroup"
    assert (group.group, group.aside) == ("group", False)
    assert (first.text, first.group, first.aside) == ("ValueError: bad shard 3", "member", True)
    assert (second.text, second.group, second.aside) == ("KeyError: 'x'", "member", True)
    assert texts("bare_group")[1:] == ["ValueError: never raised", "TypeError: b"]


def test_what_did_not_end_the_program_stands_aside() -> None:
    for name, inner in {"ignored_after": "AttributeError", "thread": "ConnectionResetError", "task": "OSError"}.items():
        aside = [raised.name for raised in parse(lines_of(TAILS[name])) if raised.aside]
        assert aside == [inner], name


def test_ranks_that_write_at_once_are_told_apart() -> None:
    labels = {raised.label: raised.text for raised in parse(lines_of(TAILS["torchrun_raise"]))}
    assert labels["1"] == "ValueError: bad batch at step 3"
    assert labels["0"].startswith("RuntimeError: [")
    assert texts("mpi_tagged") == ["ValueError: label 1001 of 1000"]


def test_a_message_of_several_lines_is_kept() -> None:
    (text,) = texts("multi")
    assert text.split("\n")[1].strip() == 'Missing key(s) in state_dict: "bias".'


def test_a_crash_dump_shows_the_thread_that_crashed() -> None:
    (dump,) = parse(lines_of(TAILS["segfault"]))
    assert dump.fatal
    assert [frame.line for frame in dump.frames] == [12, 519]


def test_overwritten_parts_of_a_line_are_dropped() -> None:
    assert [line.text for line in lines_of(b"\r 10%\r 20%\r\nnext\xff")] == [" 20%", "next�"]
    assert [line.text for line in lines_of(b"r.sh: ./tool\r: No such file\r")] == ["r.sh: ./tool\\r: No such file"]


@pytest.mark.parametrize(
    "line",
    [
        '{"level": "ERROR", "exc_info": %s}',
        '{"severity": "ERROR", "message": "fatal", "error": {"stack_trace": %s, "type": "x"}}',
        '2026-11-28 ERROR {trainer} {"records": [{"exc": %s}]}',
    ],
)
def test_a_traceback_in_a_line_of_json(line: str) -> None:
    trace = TAILS["cause"].decode()
    tail = line % json.dumps(trace) + "\n" + json.dumps({"level": "INFO"}) + "\n"
    raised = parse(lines_of(tail.encode()))
    assert [each.text for each in raised] == [each.text for each in parse(lines_of(trace.encode()))]
    assert raised[-1].frames


def test_noise() -> None:
    for text in ("", "W1121 10:06:15.188000 10235 torch/x.py:165] Terminating", "x.py:3: UserWarning: old", "=" * 60):
        assert is_noise(text), text
    for text in ("ValueError: x", "epoch 3", "train.sh: line 3: foo: command not found"):
        assert not is_noise(text), text


@given(st.lists(st.sampled_from(sorted(TAILS)), min_size=1, max_size=3), st.integers(0, 3000), st.integers(0, 3000))
def test_any_piece_of_any_tail_parses(names: list[str], start: int, length: int) -> None:
    whole = b"".join(TAILS[name] for name in names)
    for raised in parse(lines_of(whole[start : start + length])):
        assert raised.start <= raised.end
        assert raised.name
