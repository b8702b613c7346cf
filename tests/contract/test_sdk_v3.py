"""Jobs of SDK v3 through its own drivers and through ours: the program gets the same words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from musterpoint.core.job.hyperparameters import decode, to_arguments
from musterpoint.integrations.sagemaker_drivers import quote_file

pytestmark = pytest.mark.xdist_group("sdk-v3")


class Peer(Protocol):
    """What the SDK's side answers."""

    def __call__(self, hyperparameters: dict[str, Any], **more: Any) -> Any: ...


@pytest.fixture(scope="module")
def drivers(stack: Callable[[str], Path]) -> Path:
    """The folder of the drivers that the SDK uploads with a job."""
    (found,) = stack("sdk-v3").parent.glob("lib/python3.*/site-packages/sagemaker/train/container_drivers")
    return found


@pytest.fixture(scope="module")
def theirs(stack: Callable[[str], Path], drivers: Path) -> Iterator[Peer]:
    command = [stack("sdk-v3") / "python", Path(__file__).parent / "sdk_peer.py", drivers]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={"TRAINING_JOB_NAME": "job", "PATH": ""},
    ) as serves:  # fmt: skip
        assert serves.stdin is not None
        assert serves.stdout is not None
        asks, answers = serves.stdin, serves.stdout

        def ask(hyperparameters: dict[str, Any], **more: Any) -> Any:
            print(json.dumps({"hyperparameters": hyperparameters, **more}), file=asks, flush=True)
            return json.loads(answers.readline())

        yield ask
        asks.close()


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)
SENT = TEXTS | VALUES.map(json.dumps) | VALUES.map(json.dumps).map(json.dumps) | VALUES
"""Raw strings and JSON, as the SDK sends them; JSON in quotes, as people do; and what only a broken sender would."""


@example({"boolean": "true", "list": '[1, "a"]', "none": "null", "t": "true", "f": "1e5", "version": '"1.10"'})
@example({"sagemaker_program": "t.py", "_tuning_objective_metric": "loss", "mp_parameters": '{"ddp": true}'})
@example({"text": "NaN", "far": "1e999", "twice": '"[1,2]"', "nested": '{"a": "\\u00e4", "b": null}', "": ""})
@given(st.dictionaries(NAMES, SENT))
def test_words(theirs: Peer, hyperparameters: dict[str, Any]) -> None:
    ours = to_arguments(decode(hyperparameters, "hyperparameters.json"), "json", everything=True)
    assert ["train.py", *ours] == theirs(hyperparameters)


JOB = {
    "integer": "1", "boolean": "true", "float": "3.14", "string": "Hello World", "list": '[1, "a"]', "none": "null",
    "dict": '{"string": "value", "list": [1, 2], "off": false}', "t": "false", "quoted": "it's \"so\"",
    "sagemaker_recipe_local_path": "/opt/ml/input/data/recipe/recipe.yaml",
}  # fmt: skip
RESOURCES = {
    "current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "eth0",
    "current_instance_type": "ml.m5.xlarge",
}  # fmt: skip
SEEN = """
import json, os, sys

print(json.dumps([sys.argv[1:], os.getcwd(), {name: value for name, value in os.environ.items()
                                              if name.startswith("SM_HP")}]))
"""
PROGRAMS = {"train.py": SEEN, "train.sh": f'#!/bin/sh\nexec {sys.executable} sub.py "$@"\n', "sub.py": SEEN}


@pytest.mark.parametrize("entry", ["train.py", "train.sh"])
def test_a_whole_job_of_one_host(
    entry: str, theirs: Peer, drivers: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    """The SDK's script writes the variables, a shell sources them, and the driver, theirs or ours, starts the program.

    The program gets the same words and variables of hyperparameters from both.
    """
    inputs = {name: {"TrainingInputMode": "File"} for name in ("code", "sm_drivers")}
    tree = {"hyperparameters": JOB, "inputdataconfig": inputs, "resourceconfig": RESOURCES}
    for folder in ("input/config", "model", "code"):
        (tmp_path / "ml" / folder).mkdir(parents=True)
    for stem, content in tree.items():
        (tmp_path / f"ml/input/config/{stem}.json").write_text(json.dumps(content))
    for name, text in PROGRAMS.items():
        (tmp_path / "ml/code" / name).write_text(text)
    written = str(tmp_path / "sm_training.env")
    theirs(JOB, resources=RESOURCES, inputs=inputs, environ=written)
    quote_file(written)  # theirs quotes nothing
    environ |= {"SM_ENTRY_SCRIPT": entry, "SAGEMAKER_BASE_DIR": str(tmp_path / "ml"), "TRAINING_JOB_NAME": "job"}
    seen = []
    for driver in ([str(drivers / "distributed_drivers/basic_script_driver.py")], ["-m", "musterpoint.cli.driver"]):
        done = subprocess.run(
            ["/bin/bash", "-ec", 'source "$0"; exec "$@"', written, sys.executable, *driver],
            env={**environ, "MUSTER_LAUNCHER": "script"}, cwd=tmp_path / "ml/code", capture_output=True, text=True,
            timeout=500, check=False,
        )  # fmt: skip
        (row,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")] or [done.stderr]
        seen.append(row)
    assert seen[0] == seen[1]
    assert seen[0][0][:6] == ["--integer", "1", "--boolean", "true", "--float", "3.14"]
