"""A job on a host without any network: what is packed runs, and what isn't is missed at once, with a sentence."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Train
from .network import usable
from .packages import PYPROJECT, backend, tar_gz, wheel

pytestmark = [
    pytest.mark.xdist_group("packages"), pytest.mark.netns,
    pytest.mark.skipif(not usable(), reason="network namespaces need Linux and root"),
]  # fmt: skip

NOTHING = ("unshare", "--net", "--")
LOOPBACK = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")

PROGRAM = """
import json, os, sys
import mp_far, mp_farther, mp_here
print(json.dumps([mp_far.VERSION, mp_farther.VERSION, mp_here.BUILT, os.listdir("/sys/class/net"), sys.argv[1:]]))
"""


def pack(train: Train, files: dict[str, str | bytes], config: dict[str, Any] | None) -> None:
    """The job as SDK v2 sends it under network isolation. ``config``: its trainingjobconfig.json, None for none."""
    channel = train.base / "input/data/code"
    channel.mkdir(parents=True)
    (channel / "sourcedir.tar.gz").write_bytes(tar_gz(files))
    words = {
        "sagemaker_program": "train.py",
        "sagemaker_submit_directory": str(channel / "sourcedir.tar.gz"),
        "lr": 0.1,
    }
    content: dict[str, Any] = {
        "hyperparameters.json": {name: json.dumps(value) for name, value in words.items()},
        "inputdataconfig.json": {"code": {"TrainingInputMode": "File"}},
        "trainingjobconfig.json": config,
    }
    for name, value in content.items():
        if value is not None:
            (train.base / "input/config" / name).write_text(json.dumps(value))


MEET = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("MET", int(total.item()), os.environ.get("GLOO_SOCKET_IFNAME"), flush=True)
dist.destroy_process_group()
"""
UNNAMED = ("unshare", "--net", "--uts", "--", "sh", "-c", 'hostname c0ffee && ip link set lo up && exec "$@"', "sh")


@pytest.mark.lane("suite")
@pytest.mark.torch
@pytest.mark.parametrize("launcher", ["ranks", pytest.param("torchrun", marks=pytest.mark.lane("hosts"))])
def test_ranks_of_one_host_meet_without_asking_for_its_name(
    launcher: str, python: str, environ: dict[str, str], tmp_path: Path
) -> None:
    """As in ``docker run --network none``: nobody knows the host's name, and Gloo warns when it has asked in vain."""
    (tmp_path / "meet.py").write_text(MEET)
    done = subprocess.run(
        [*UNNAMED, python, "-m", "musterpoint", "launch", "--launcher", launcher, "--slots", "2", "meet.py"],
        cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("MET 2 lo\n") == 2, done.stdout + done.stderr
    assert "Unable to resolve hostname" not in done.stderr + done.stdout


@pytest.mark.parametrize("network", [NOTHING, LOOPBACK], ids=["nothing", "loopback"])
def test_a_packaged_job(network: tuple[str, ...], installing: Train) -> None:
    """Its wheels and a package of its own lie in the archive; the ranks of a second slot meet where there is a way."""
    wheels = (wheel("mp-far", "2.1", ["mp-farther>=3"]), wheel("mp-farther", "3.0"), backend())
    files: dict[str, str | bytes] = {f"wheelhouse/{name}": data for name, data in wheels}
    files.update({
        "train.py": PROGRAM, "requirements.txt": "mp-far==2.1\n",
        "pyproject.toml": PYPROJECT.replace("NAME", "mp-here"),
    })  # fmt: skip
    pack(installing, files, {"EnableNetworkIsolation": True} if network == LOOPBACK else None)
    done = installing.run(*network)
    assert done.returncode == 0, done.stderr
    *versions, names, arguments = json.loads(done.stdout)
    assert versions == ["2.1", "3.0", True]
    assert "lo" in names
    assert arguments == ["--lr", "0.1"]
    assert (installing.base / "output/success").exists()


def test_what_is_not_packed_is_missed_at_once(installing: Train) -> None:
    pack(installing, {"train.py": "", "requirements.txt": "mp-far-away\nmp-other\n"}, {"EnableNetworkIsolation": True})
    began = time.monotonic()
    done = installing.run(*LOOPBACK)
    assert done.returncode == 71, done.stderr
    assert time.monotonic() - began < 100
    assert installing.reason.startswith("muster: pip can't install requirements.txt (exit code 1): ")
    assert "No matching distribution found for mp-far-away (the network: " in installing.reason
    assert "put all wheels in a directory wheelhouse beside the code" in installing.reason
    assert b"trying again" not in done.stderr
