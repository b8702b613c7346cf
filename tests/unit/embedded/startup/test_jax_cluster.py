"""What happens when a program of a ``jax`` job imports JAX; ``jax`` here is a small package in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.core.launch.inputs import STARTUP, TASKS

CLUSTERS = """
class ClusterEnv:
    _cluster_types = []
    opt_in_only_method = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls._cluster_types.append(cls)

class SlurmCluster(ClusterEnv):
    pass
"""
DISTRIBUTED = """
import atexit

class State:
    client = object()

    def shutdown(self):
        print("waits for all others", flush=True)

state = State()
atexit.register(lambda: state.shutdown())
"""
BEFORE = "import atexit; atexit.register(print, 'registered before'); import jax._src.distributed as d\n"


@pytest.fixture
def jax(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of a rank."""
    package = tmp_path / "jax" / "_src"
    (package / "clusters").mkdir(parents=True)
    (package / "clusters" / "__init__.py").write_text(CLUSTERS)
    (package / "distributed.py").write_text(DISTRIBUTED)
    told = {"JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3", "JAX_COORDINATOR_ADDRESS": "10.0.0.1:7701"}
    told[TASKS] = "jax_cluster"
    return {**environ, **told, "PYTHONPATH": os.pathsep.join([STARTUP, str(tmp_path)])}


def run(code: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)


ASK = """
from jax._src.clusters import ClusterEnv
first, *others = ClusterEnv._cluster_types
print(first.name, [other.__name__ for other in others], first.is_env_present())
if first.is_env_present():
    print(first.get_coordinator_address(timeout_secs=5, override_coordinator_port=None), first.get_process_count(),
          first.get_process_id(), first.get_local_process_id())
"""


def test_this_jobs_environment_comes_first(jax: dict[str, str]) -> None:
    said = run(ASK, jax)
    assert said.stdout.splitlines() == ["musterpoint ['SlurmCluster'] True", "10.0.0.1:7701 4 3 None"], said.stderr
    del jax["JAX_PROCESS_ID"]
    assert run(ASK, jax).stdout.splitlines() == ["musterpoint ['SlurmCluster'] False"]


def test_nothing_of_jax_is_imported_for_it(jax: dict[str, str]) -> None:
    said = run("import sys; print([name for name in sys.modules if name.startswith('jax')])", jax)
    assert said.stdout == "[]\n", said.stderr


WAITS = "waits for all others"
ENDS = {
    "well": ("", 0, WAITS),
    "sys.exit(0)": ("import sys; sys.exit(0)", 0, WAITS),
    "an exception": ("raise LookupError('no such shard')", 1, ""),
    "a code": ("import sys; sys.exit(7)", 7, ""),
    "a code beyond a byte": ("import sys; sys.exit(257)", 1, ""),
    "words": ("import sys; sys.exit('no such shard')", 1, ""),
    "before it joined": ("d.State.client = None; raise LookupError('no such shard')", 1, WAITS),
    "its own clean-up": ("try:\n    raise LookupError('no such shard')\nfinally:\n    d.state.shutdown()", 1, ""),
    "in a handler": ("try:\n    next(iter(()))\nexcept StopIteration:\n    d.state.shutdown()", 0, f"{WAITS}\n{WAITS}"),
}


@pytest.mark.parametrize(("code", "status", "said"), ENDS.values(), ids=ENDS)
def test_only_a_process_that_fails_leaves_without_the_others(
    jax: dict[str, str], code: str, status: int, said: str
) -> None:
    """It still runs what was registered for its exit, and flushes what it has printed."""
    ran = run(f"{BEFORE}import sys; sys.stdout.write('printed\\n')\n{code}", jax)
    assert ran.returncode == status, ran.stderr
    assert ran.stdout.splitlines() == ["printed", *said.splitlines(), "registered before"]
    assert ("no such shard" in ran.stderr) == ("no such shard" in code)


@pytest.mark.parametrize("other_first", [True, False])
def test_a_sitecustomize_of_the_users_runs_as_well(
    jax: dict[str, str], tmp_path: Path, their_sitecustomize: str, other_first: bool
) -> None:
    """Also one that calls all others itself, before this one or after it."""
    folders = [their_sitecustomize, STARTUP] if other_first else [STARTUP, their_sitecustomize]
    jax["PYTHONPATH"] = os.pathsep.join([*folders, str(tmp_path)])
    assert run(ASK, jax).stdout.splitlines()[:2] == ["theirs", "musterpoint ['SlurmCluster'] True"]
