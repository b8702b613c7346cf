"""Slurm's lists, compared with what ``scontrol show hostnames`` of Slurm 22.05 says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.core.job.platforms.slurm import per_host
from musterpoint.core.job.slurm_step import nodes_of, tasks_of

LISTS = {
    "a,b": "a b",
    "fa-2": "fa-2",
    "n[08-11]": "n08 n09 n10 n11",
    "n[001-003,7]": "n001 n002 n003 n7",
    "n[01-2]": "n01 n02",
    "n[098-101]": "n098 n099 n100 n101",
    "n[0-0]": "n0",
    "r[1-2]n[1-3]": "r1n1 r1n2 r1n3 r2n1 r2n2 r2n3",
    "a[1-2],b3,c[5,7-8]": "a1 a2 b3 c5 c7 c8",
    "ip-10-0-0-[1,12]": "ip-10-0-0-1 ip-10-0-0-12",
    "gnode[10,20,25,37]": "gnode10 gnode20 gnode25 gnode37",
    "n[1,1]": "n1",  # once: each host has one place
    "n1-3": "n1-3",
    "node-a.b.c,n[1-2]": "node-a.b.c n1 n2",
}
REFUSED = [
    "n[3-1]", "n[a-c]", "n[]", "n[1-2]-ib", "n[1-2].x.y", "b[00x11]", "", ",", "a,", ",a", "a,,b", "n[1-2", "n1-2]",
    "n[[1]]", "n[1]]", "n][", "[", "]", "n[1-]", "n[-1]", "n[1,]", "n[ 1]", "n[1 - 2]", "n[1-99999999]", "(null)",
    "n[1-60000][1-60000]", "n[1-9999999999]", "a b", "a\n", "n[\u0661-\u0662]", "n[1-2]\n",
]  # fmt: skip


@pytest.mark.parametrize("text", LISTS)
def test_a_list_is_spelled_out(text: str) -> None:
    assert nodes_of(text, "SLURM_JOB_NODELIST") == tuple(LISTS[text].split())


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_list_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(UsageError, match=r"^SLURM_STEP_NODELIST") as error:
        nodes_of(text, "SLURM_STEP_NODELIST")
    assert json.dumps(text) in str(error.value) or repr(text) in str(error.value)


prefixes = st.from_regex(r"[a-z][a-z0-9.-]{0,8}[a-z]", fullmatch=True)
ranges = st.tuples(st.integers(0, 2000), st.integers(0, 40), st.integers(1, 6))


@given(st.lists(st.tuples(prefixes, st.lists(ranges, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_every_list_comes_back(parts: list[tuple[str, list[tuple[int, int, int]]]]) -> None:
    """Written as Slurm writes it and read again, at any width."""
    words, names = [], []
    for prefix, spans in parts:
        texts = []
        for first, more, width in spans:
            texts.append(f"{first:0{width}d}-{first + more}" if more else f"{first:0{width}d}")
            names += [f"{prefix}{number:0{width}d}" for number in range(first, first + more + 1)]
        words.append(f"{prefix}[{','.join(texts)}]")
    assert nodes_of(",".join(words), "X") == tuple(dict.fromkeys(names))


@given(st.text("n0123456789[],-.() x", max_size=24))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    for read in (nodes_of, tasks_of):
        try:
            assert read(text, "X")
        except UsageError as error:
            assert "X" in str(error)


@given(st.lists(st.integers(0, 999), min_size=1, max_size=30))
def test_tasks_come_back(counts: list[int]) -> None:
    assert tasks_of(per_host(counts), "X") == tuple(counts)


@pytest.mark.parametrize("text", ["", "x", "2(x)", "2(x2", "-1", "2,", "2 ,1", "1(x99999),1(x99999)", "2(x-1)"])
def test_what_counts_no_tasks_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^SLURM_STEP_TASKS_PER_NODE is"):
        tasks_of(text, "SLURM_STEP_TASKS_PER_NODE")
