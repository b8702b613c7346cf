"""Packages without a network, from an index with a password, and with uv."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from .conftest import MakeIndex, Train
from .packages import LOOKS, PYPROJECT, Index, backend, sdist, wheel

pytestmark = pytest.mark.xdist_group("packages")

TOKEN = "eyJ2ZXIiOjEsInRva2VuIjoidGhlLXRva2VuLW9mLXRoZS10ZXN0In0-and/more+of=it"
ARN = "arn:aws:codeartifact:eu-west-1:111122223333:repository/domain/repo"


def codeartifact(index: Index) -> Callable[[str, str], str]:
    """CodeArtifact's two calls, as its service model has them."""

    def answer(method: str, path: str) -> str:
        if method == "POST" and path.startswith("/v1/authorization-token?"):
            return json.dumps({"authorizationToken": TOKEN, "expiration": 1_900_000_000})
        if method == "GET" and path.startswith("/v1/repository/endpoint?"):
            return json.dumps({"repositoryEndpoint": f"http://{index.host}/pypi/repo/"})
        return ""

    return answer


AT_BUILD = f'{LOOKS}print("the build sees", os.environ["NETRC"], open(os.environ["NETRC"]).read())\n'


@pytest.mark.parametrize("ends", ["well", "badly"])
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_the_token_of_codeartifact_is_nowhere(
    ends: str, installer: str, index: MakeIndex, installing: Train, stack: Callable[[str], Path], tmp_path: Path
) -> None:
    """Not on a command line (the builds pip starts get their index there), in the log, or in the reason."""
    python = stack("s3") / "python"
    name = f"mp-hush-{ends}-{installer}"
    at_build = AT_BUILD + ("" if ends == "well" else "raise RuntimeError(open(os.environ['NETRC']).read())\n")
    packages = index(
        backend(), sdist(name, {"pyproject.toml": PYPROJECT.replace("NAME", name), "at_build.py": at_build}),
        password=TOKEN,
    )  # fmt: skip
    packages.api = codeartifact(packages)
    (tmp_path / ".netrc").write_text("machine elsewhere.example login me password mine\n")
    installing.program(f"import {name.replace('-', '_')}")
    (installing.base / "code" / "requirements.txt").write_text(f"{name}\n")
    # what the user's Python finds on PYTHONPATH, it has
    inputs = next(python.parent.parent.glob("lib/python3*/site-packages"))
    done = installing.run(
        CA_REPOSITORY_ARN=ARN, AWS_ENDPOINT_URL_CODEARTIFACT=f"http://{packages.host}", AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="a-secret-of-the-test", SEEN=str(tmp_path / "seen"), MUSTER_INSTALLER=installer,
        PYTHONPATH=os.pathsep.join((installing.environ["PYTHONPATH"], str(inputs))),
        PATH=f"{python.parent}:{installing.environ['PATH']}", UV_INSECURE_HOST=packages.host,
    )  # fmt: skip
    assert done.returncode == (0 if ends == "well" else 71), done.stderr
    seen = (tmp_path / "seen").read_text()
    assert installer in seen
    written = seen + done.stderr.decode() + done.stdout.decode()
    written += "".join(path.read_text() for path in (installing.base / "output").rglob("*") if path.is_file())
    assert TOKEN not in written
    assert ("***" in done.stderr.decode()) == (ends == "badly")
    assert f"musterpoint: packages come from {packages.url}" in done.stderr.decode()
    assert not list(tmp_path.glob("musterpoint-install-*/"))


@pytest.fixture
def uv(installing: Train, stack: Callable[[str], Path]) -> Train:
    installing.environ.update(MUSTER_INSTALLER="uv", PATH=f"{stack('s3')}:{installing.environ['PATH']}")
    return installing


@pytest.mark.lane("suite")
def test_uv_installs_when_it_is_asked_for(uv: Train, index: MakeIndex) -> None:
    packages = index(wheel("mp-uv"))
    uv.program("import mp_uv; print(mp_uv.VERSION)")
    (uv.base / "code" / "requirements.txt").write_text("mp-uv==1.0\n")
    done = uv.run(UV_DEFAULT_INDEX=packages.url)
    assert (done.returncode, done.stdout) == (0, b"1.0\n"), done.stderr
    assert b" + mp-uv==1.0" in done.stderr


def test_a_lock_of_uv_is_followed(uv: Train, index: MakeIndex, user_python: str, tmp_path: Path) -> None:
    """The older version it locks is installed, nothing else is removed, and the mounted code stays as it is."""
    packages = index(wheel("mp-locked", "1.0"), wheel("mp-kept"))
    uv.program("import mp_locked, mp_kept; print(mp_locked.VERSION)")
    folder = uv.base / "code"
    (folder / "requirements.txt").write_text("mp-kept\n")
    assert uv.run(UV_DEFAULT_INDEX=packages.url).returncode == 1  # mp_locked isn't there yet
    (folder / "requirements.txt").unlink()
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\ndependencies = ["mp-locked"]\n'
    )
    environ = {**uv.environ, "UV_DEFAULT_INDEX": packages.url}
    lock = ["uv", "lock", "--project", folder, "--python", user_python]
    subprocess.run(lock, env=environ, check=True, capture_output=True, timeout=500)
    packages.packages.update([wheel("mp-locked", "2.0")])
    before = sorted(path.name for path in folder.iterdir())
    done = uv.run(UV_DEFAULT_INDEX=packages.url)
    assert (done.returncode, done.stdout) == (0, b"1.0\n"), done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before
