"""A plan as JSON."""

from __future__ import annotations

import json

from musterpoint.base.masking import Masker
from musterpoint.core.fabric.setting import CpuSet
from musterpoint.tools.plans.page import to_json

from ...core.launch.conftest import Planner

NOBODY = Masker()


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


def test_daemons_reasons_and_processors_are_in_it(plan: Planner) -> None:
    hosts = to_json([plan("mpi", {"a": 2, "b": 2}, me) for me in ("a", "b")], "", [], NOBODY)["hosts"]
    assert [host["daemons"] for host in hosts] == [["orted"], ["orted"]]
    reasons = hosts[0]["processes"][0]["reasons"]
    assert reasons["--mca plm_rsh_no_tree_spawn 1"].startswith("every daemon")
    assert reasons["--bind-to"].startswith("a rank and its threads")
    made = plan("ranks", {"a": 2}, cpu_sets=(CpuSet("0-3", "4 cores here"), CpuSet("4-7", "4 cores there")))
    shown = to_json([made], "headline", (), NOBODY)["hosts"][0]["cpu_sets"]
    assert shown[1] == {"local_rank": 1, "cpus": "4-7", "reason": "4 cores there"}
