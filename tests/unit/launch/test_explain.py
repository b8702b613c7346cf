"""A plan as a page and as JSON."""

from __future__ import annotations

import json
from typing import Callable

from musterpoint.fabric.mpi import MPICH, OPEN_MPI, Mpi
from musterpoint.fabric.setting import CpuSet
from musterpoint.job.model import Distribution
from musterpoint.launch.explain import to_json, to_text
from musterpoint.launch.plan import BOOT, Argument, LaunchPlan
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
    assert "<musterpoint's horovod_rendezvous>" in page
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


def test_what_mpirun_starts_is_shown_on_every_host(plan: Planner) -> None:
    plans = [plan("mpi", {"a": 2, "b": 2}, me) for me in ("a", "b")]
    page = to_text(plans, "", [], NOBODY)
    assert "OMPI_MCA_plm_rsh_agent=<musterpoint's launch_agent>" in page
    assert "  orted, when the leader's mpirun asks for it\n" in page
    assert page.count("its ranks run in") == 2
    hosts = to_json(plans, "", [], NOBODY)["hosts"]
    assert [host["daemons"] for host in hosts] == [["orted"], ["orted"]]
    reasons = hosts[0]["processes"][0]["reasons"]
    assert reasons["--mca plm_rsh_no_tree_spawn 1"].startswith("every daemon")
    assert reasons["--bind-to"].startswith("a rank and its threads")


def test_a_secret_among_mpi_options_is_masked(plan: Planner) -> None:
    options = Distribution("mpi", options="-x HF_TOKEN=s3cret -x LEVEL=info")
    for mpi in (Mpi("/m", MPICH, (5, 0)), Mpi("/m", OPEN_MPI, (5, 0))):
        made = plan("mpi", {"a": 2, "b": 2}, distribution=options, mpi=mpi)
        page = to_text([made], "", [], NOBODY)
        assert "s3cret" not in page
        assert "info" in page


def test_a_word_of_the_users_that_looks_like_ours_is_shown_as_it_is(plan: Planner) -> None:
    made = plan("ranks", {"a": 1}, exports=(("SM_HP_X", "{muster:launch_agent}"),))
    process = made.processes[0]
    made = made._replace(processes=(process._replace(argv=(*process.argv, Argument("{muster:nothing}"))),))
    page = to_text([made], "", [], NOBODY)
    assert "'{muster:nothing}'" in page
    assert "SM_HP_X='{muster:launch_agent}'" in page


def test_processors_of_ranks_are_shown_with_their_reason(plan: Planner) -> None:
    made = plan("ranks", {"a": 2}, cpu_sets=(CpuSet("0-3", "4 cores here"), CpuSet("4-7", "4 cores there")))
    text = to_text([made], "headline", (), Masker())
    assert "  on the processors\n    local rank 0: 0-3 " in text and "4 cores there" in text
    shown = to_json([made], "headline", (), Masker())["hosts"][0]["cpu_sets"]
    assert shown[1] == {"local_rank": 1, "cpus": "4-7", "reason": "4 cores there"}
