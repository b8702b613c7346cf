"""A plan as a page and as JSON."""

from __future__ import annotations

import json
from typing import Callable

from musterpoint.launch.explain import to_json, to_text
from musterpoint.launch.plan import LaunchPlan
from musterpoint.launch.stub_command import BOOT
from musterpoint.masking import Masker

Planner = Callable[..., LaunchPlan]


NOBODY = Masker()


def test_the_page_has_every_flag_with_its_reason_once(plan: Planner) -> None:
    plans = [
        plan("torchrun", {"a": 2, "b": 2}, me, exports=(("HF_TOKEN", "s3cret"), ("SM_HPS", '{"lr": 1}')))
        for me in ("a", "b")
    ]
    page = to_text(plans, "digits: 2 hosts, torchrun", ["a remark"], NOBODY)
    lines = page.splitlines()
    assert lines[0] == "digits: 2 hosts, torchrun"
    assert "a: torchrun, ranks 0 to 1 of 4" in lines
    assert "b: torchrun, ranks 2 to 3 of 4" in lines
    assert "note: a remark" in lines
    assert len([line for line in lines if "--node-rank=1" in line and "this host's place" in line]) == 1
    assert "s3cret" not in page
    assert BOOT not in page
    assert """SM_HPS='{"lr": 1}'""" in page


def test_ranks_that_run_the_same_say_so(plan: Planner) -> None:
    page = to_text([plan("ranks", {"a": 3})], "", [], NOBODY)
    assert page.count("train.py") == 1
    assert page.count("runs the same") == 2


def test_ranks_behind_a_service_run_the_same_too(plan: Planner) -> None:
    made = plan("ranks", {"a": 2, "b": 1}, "a", modules=frozenset({"horovod"}))
    page = to_text([made], "", [], NOBODY)
    assert "<musterpoint's rendezvous>" in page
    assert (page.count("train.py"), page.count("runs the same")) == (1, 1)


def test_json_is_the_whole_plan(plan: Planner) -> None:
    made = plan("ranks", {"a": 2}, exports=(("HF_TOKEN", "s3cret"),))
    value = json.loads(json.dumps(to_json([made], "head", ["remark"], NOBODY)))
    (host,) = value["hosts"]
    assert (value["plan"], value["notes"]) == ("head", ["remark"])
    assert [process["argv"] for process in host["processes"]] == [process.words for process in made.processes]
    assert {"name": "RANK", "value": "1", "reason": made.processes[1].environment[0].reason} in (
        host["processes"][1]["environment"]
    )
    assert "s3cret" not in json.dumps(value)
