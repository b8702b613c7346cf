"""The page of ``muster plan``: what stands on it, and how it is drawn."""

from __future__ import annotations

import shlex
from typing import Any, Sequence

import pytest

from musterpoint.base.masking import Masker
from musterpoint.core.fabric.mpirun import MPICH, OPEN_MPI, Mpi
from musterpoint.core.fabric.setting import CpuSet, EnvSetting
from musterpoint.core.job.model import Distribution
from musterpoint.core.job.platform import EXPECTED
from musterpoint.core.launch.launch_plan import BOOT, Argument, LaunchPlan
from musterpoint.tools.plans.drawing import PLAIN, Style, draw
from musterpoint.tools.plans.page import KEPT, MOST_OTHERS, NOT_NEEDED, READ, REMOVED, Subject, page_of

from ...core.launch.conftest import Planner

EXPORTS = (("HF_TOKEN", "s3cret"), ("SM_HPS", '{"lr": 1}'), ("SM_HOSTS", "[]"))


def shown(
    plans: Sequence[LaunchPlan], notes: Sequence[str] = (), used: Sequence[EnvSetting] = (), everything: bool = False,
    style: Style = PLAIN,
) -> str:  # fmt: skip
    subject = Subject("digits", "train.py", plans[0].launcher, "it was asked for")
    return draw(page_of(subject, plans, plans, notes, Masker(), used, everything), style)


def block(page: str, title: str) -> list[str]:
    """The lines of the host with ``title``."""
    lines = page.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith(title))
    end = next((place for place in range(at + 1, len(lines)) if lines[place][:1].strip()), len(lines))
    return lines[at + 1 : end]


def test_the_first_host_is_whole_and_of_the_others_only_what_differs(plan: Planner) -> None:
    plans = [plan("torchrun", {"a": 2, "b": 2}, me, exports=EXPORTS) for me in ("a", "b")]
    page = shown(plans, ["a remark", "warning: look out", "another"])
    lines = page.splitlines()
    assert lines[0] == "digits: train.py runs as 4 ranks on 2 hosts, 2 on each."
    assert "a: torchrun, ranks 0 to 1 of 4" in lines
    others = block(page, "b: torchrun, ranks 2 to 3 of 4; as a, but for")
    differ = [line.split()[0] for line in others if line.strip()]
    assert differ == ["--node-rank=1", "--local-addr=10.0.0.2", "NODE_RANK=1"]
    assert "this host's place in the group" in others[0]
    assert lines[-3:] == ["note: a remark", "note: another", "warning: look out"], "warnings are last"
    assert "s3cret" not in page and BOOT not in page


def test_the_command_can_be_copied(plan: Planner) -> None:
    """As a shell reads it, it is what runs, without the rank stub."""
    made = plan("torchrun", {"a": 2, "b": 2}, "a")
    for style in (Style(), Style(80), Style(40)):
        lines = block(shown([made], style=style), "a: ")
        begin = next(at for at, line in enumerate(lines) if line.strip().startswith("cd "))
        text = "\n".join(lines[begin : lines.index("", begin)])
        directory, *words = shlex.split(text.replace("\\\n", ""))[1:]
        stub = made.processes[0].words
        assert directory == made.user_cwd
        assert words == [*stub[: stub.index(BOOT) - 4], *stub[stub.index("--") + 1 :]]


def test_platform_variables_are_one_line_unless_everything_is_asked_for(plan: Planner) -> None:
    plans = [plan("ranks", {"a": 1, "b": 1}, me, exports=EXPORTS) for me in ("a", "b")]
    used = [EnvSetting("SM_HOSTS", "[]", f"{READ}; {REMOVED}"), EnvSetting("SM_X", "1", f"{NOT_NEEDED}; {KEPT}")]
    page = shown(plans, used=used)
    (line,) = [line for line in page.splitlines() if "SM_*" in line]
    assert line.split() == f"3 variables: 2 SM_*, HF_TOKEN {EXPECTED[0]}; --all shows them".split()
    assert f"variables of the platform that were found on a: SM_HOSTS and SM_X; SM_HOSTS: {REMOVED}; --all" in page
    page = shown(plans, used=used, everything=True)
    assert """SM_HPS='{"lr": 1}'""" in page and "SM_X=1" in page
    assert "as a, but for" not in page and page.count("NODE_RANK=1") == 1, "every host is whole"


def test_ranks_that_run_the_same_are_shown_once(plan: Planner) -> None:
    page = shown([plan("ranks", {"a": 3})])
    assert (page.count("train.py --lr"), page.count("  ranks 0 to 2, in /opt/ml/code")) == (1, 1)
    assert " RANK=0 to 2  " in page and " WORLD_SIZE=3  " in page
    page = shown([plan("ranks", {"a": 2, "b": 1}, "a", modules=frozenset({"horovod"}))])
    assert "<musterpoint's horovod_rendezvous>" in page
    assert page.count("train.py --lr") == 1


def test_hosts_of_another_kind_are_compared_with_their_own(plan: Planner) -> None:
    hosts = {"a": 1, "b": 0, "c": 0, "d": 0}
    page = shown([plan("ray", hosts, me) for me in hosts])
    assert "train.py runs as 1 rank on a; b, c and d serve it." in page
    assert "  not started here: Ray's head and rank 0" in block(
        page, "b: ray, no rank, what runs here serves the others; as a"
    )
    assert "; as b, but for" in page and "; as a, but for" in page
    assert len(block(page, "d: ray")) < 5


def test_many_hosts_are_not_all_shown(plan: Planner) -> None:
    hosts = {f"h{number}": 1 for number in range(MOST_OTHERS + 4)}
    plans = [plan("ranks", hosts, me) for me in hosts]
    page = shown(plans)
    assert page.count(": ranks, rank") == MOST_OTHERS + 1
    assert f"3 more hosts, up to h{MOST_OTHERS + 3}: --host NAME shows one, --all all of them" in page
    assert shown(plans, everything=True).count(": ranks, rank") == len(hosts)


SENTENCES: list[tuple[str, dict[str, int], dict[str, Any], str]] = [
    ("script", {"a": 1}, {}, "runs once on a."),
    ("script", {"a": 1, "b": 1}, {}, "runs once on each of 2 hosts: independent programs, no common world."),
    ("ranks", {"a": 1}, {}, "runs as 1 rank on a."),
    ("ranks", {"a": 4, "b": 1, "c": 2}, {}, "runs as 7 ranks on 3 hosts, 4, 1 and 2 of them."),
    ("ranks", {"a": 2, "b": 2, "c": 1}, {"outside": ("c",)},
     "runs as 4 ranks on 2 hosts, 2 on each; c runs it alone, outside the distribution."),
]  # fmt: skip


@pytest.mark.parametrize(("launcher", "hosts", "more", "sentence"), SENTENCES)
def test_the_first_sentence(
    launcher: str, hosts: dict[str, int], more: dict[str, Any], sentence: str, plan: Planner
) -> None:
    page = shown([plan(launcher, hosts, me, **more) for me in hosts])
    assert page.startswith(f"digits: train.py {sentence}\n")


def test_what_mpirun_starts_is_shown_on_every_host(plan: Planner) -> None:
    page = shown([plan("mpi", {"a": 2, "b": 2}, me) for me in ("a", "b")])
    assert "OMPI_MCA_plm_rsh_agent=<musterpoint's launch_agent>" in page
    assert "  orted, when the leader's mpirun asks for it; its ranks in /opt/ml/code" in block(page, "b: mpi")


def test_a_secret_among_mpi_options_is_masked(plan: Planner) -> None:
    options = Distribution("mpi", options="-x HF_TOKEN=s3cret -x LEVEL=info")
    for mpi in (Mpi("/m", MPICH, (5, 0)), Mpi("/m", OPEN_MPI, (5, 0))):
        made = plan("mpi", {"a": 2, "b": 2}, distribution=options, mpi=mpi)
        page = shown([made], everything=True)
        assert "s3cret" not in page
        assert "info" in page


def test_a_word_of_the_users_that_looks_like_ours_is_shown_as_it_is(plan: Planner) -> None:
    made = plan("ranks", {"a": 1}, exports=(("SM_HP_X", "{muster:launch_agent}"),))
    process = made.processes[0]
    made = made._replace(processes=(process._replace(argv=(*process.argv, Argument("{muster:nothing}"))),))
    page = shown([made], everything=True)
    assert "'{muster:nothing}'" in page
    assert "SM_HP_X='{muster:launch_agent}'" in page


def test_processors_of_ranks_are_shown_with_their_reason(plan: Planner) -> None:
    made = plan("ranks", {"a": 2}, cpu_sets=(CpuSet("0-3", "4 cores here"), CpuSet("4-7", "4 cores there")))
    text = shown([made])
    assert "  on the processors\n    local rank 0: 0-3 " in text and "4 cores there" in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_fit_the_terminal(plan: Planner, width: int) -> None:
    plans = [plan("torchrun", {"a": 2, "b": 2}, me) for me in ("a", "b")]
    page = shown(plans, ["a remark of a good many words " * 9], style=Style(width))
    long = [line for line in page.splitlines() if len(line) > width and len(line.split()) > 1]
    assert not long, "but a word that is longer itself"


def test_colours_change_nothing_but_colours(plan: Planner) -> None:
    plans = [plan("torchrun", {"a": 2, "b": 2}, me) for me in ("a", "b")]
    plain, coloured = (shown(plans, ["warning: look out"], style=Style(80, colour)) for colour in (False, True))
    assert "\x1b" not in plain and "\x1b[33mwarning: look out\x1b[0m" in coloured
    for shade in ("0", "1", "2", "33", "36"):
        coloured = coloured.replace(f"\x1b[{shade}m", "")
    assert coloured == plain
