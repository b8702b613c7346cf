from __future__ import annotations

import platform

from musterpoint.job.read import read_plain


def test_one_host_by_the_machines_name() -> None:
    job = read_plain()
    assert (job.platform, job.hosts, job.leader) == ("plain", (platform.node(),), platform.node())
    assert (job.grace, job.paths.base, job.distribution.kind) == (30.0, "", "none")


def test_a_given_name() -> None:
    assert read_plain("here").current_host == "here"
