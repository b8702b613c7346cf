"""A host's working directory: the user's code, with room for what the host writes."""

from __future__ import annotations

import os
from pathlib import Path

from musterpoint.local.job import LocalJob
from musterpoint.local.platforms.commands import prepare_directory, working_directory
from musterpoint.local.tree import Layout


def test_what_a_host_writes_stays_its_own(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "outputs").mkdir(parents=True)
    (code / "package").mkdir()
    (code / "train.py").write_text("")
    layout = Layout(str(code / "muster-jobs" / "job"))
    job = LocalJob("job", ("node-0", "node-1"), "train.py", str(code))
    for host in job.hosts:
        prepare_directory(job, host, layout, ("outputs",))
    here = Path(working_directory(layout, "node-0"))
    (here / "outputs" / "model").write_text("")
    assert sorted(os.listdir(here)) == ["outputs", "package", "train.py"], "the job's own folder isn't part of the code"
    assert os.path.realpath(here / "train.py") == str(code / "train.py")
    assert not os.listdir(code / "outputs")
    assert not os.listdir(Path(working_directory(layout, "node-1")) / "outputs")
    assert os.path.isdir(layout.tree("node-0"))
