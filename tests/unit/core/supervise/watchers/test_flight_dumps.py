"""What torch left of NCCL's last collectives: kept after a failure, removed in any case."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.processes.pump import Pump
from musterpoint.core.supervise.watchers.flight_dumps import collect

from ..bench import context_for


@pytest.mark.parametrize("failed", [True, False])
def test_dumps_are_kept_after_a_failure_and_removed(tmp_path: Path, failed: bool) -> None:
    stem, secret = tmp_path / "muster-nccl-0a-", tmp_path / "secret"
    record = pickle.dumps({"entries": [], "version": "2.10"})
    for name in ("3", "11"):
        Path(f"{stem}{name}").write_bytes(record)
    Path(f"{stem}4").write_bytes(b"cut off")
    secret.write_bytes(record)
    Path(f"{stem}5").symlink_to(secret)
    os.mkfifo(f"{stem}3.pipe")
    (tmp_path / "muster-nccl-0b-1").write_bytes(record)  # another job's
    said: list[str] = []
    kept: dict[str, bytes] = {}

    def keep(name: str, content: str | bytes) -> str:
        assert isinstance(content, bytes)
        kept[name] = content
        return f"/out/{name}"

    loop = Loop()
    context = context_for(loop, Pump(), say=said.append)._replace(keep=keep)
    collect(context, str(stem), failed)
    loop.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["muster-nccl-0b-1", "secret"]
    assert sorted(kept) == (["flight_recorder_rank_11", "flight_recorder_rank_3"] if failed else [])
    assert (
        said
        == [
            "warning: what torch's flight recorder has of rank 4 can't be kept: UnpicklingError: "
            "pickle data was truncated",
            "what NCCL did last is in /out (read it with torchfrtrace)",
        ][: 2 if failed else 0]
    )
