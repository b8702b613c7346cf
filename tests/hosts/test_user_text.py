"""What the user wrote reaches the program as it was written: no text of it means anything to us."""

from __future__ import annotations

import json

import pytest

from .conftest import Local

PROGRAM = """
import json, os, sys
print("SAW", json.dumps([sys.argv[1:], os.environ["MINE"], os.environ["SM_HP_X"]]), flush=True)
"""
TEXTS = ("{muster:nothing}", "a{muster:launch_agent}b", "{muster:rank_stub}", "{muster:", "{0} {} %s $HOME `id`")


@pytest.mark.parametrize("launcher", ["script", "ranks", pytest.param("torchrun", marks=pytest.mark.torch)])
def test_no_text_of_the_users_is_a_template(local: Local, launcher: str) -> None:
    words = ["--launcher", launcher, "--slots", "2", "--log-prefix", "none"]
    hyperparameters = json.dumps({"x": " ".join(TEXTS)})
    ran = local.run(
        *words, "--env", f"MINE={' '.join(TEXTS)}", "--hyperparameters", hyperparameters, local.program(PROGRAM), *TEXTS
    )
    assert ran.code == 0, ran.stderr + ran.stdout
    seen = [json.loads(line[4:]) for line in ran.log("algo-1").splitlines() if line.startswith("SAW ")]
    assert len(seen) == (1 if launcher == "script" else 2)
    for arguments, variable, hyperparameter in seen:
        assert arguments == ["-x", " ".join(TEXTS), *TEXTS]
        assert variable == hyperparameter == " ".join(TEXTS)
