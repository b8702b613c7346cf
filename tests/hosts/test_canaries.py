"""Secrets planted in every input of real jobs: none is in what musterpoint writes, and no look-alike is hidden.

The user's own output is theirs and passes untouched, secrets and all.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from .conftest import Local, MakeIndex, Train
from .packages import LOOKS, PYPROJECT, backend, sdist

pytestmark = pytest.mark.xdist_group("packages")

PEM = "\n".join((
    "-----BEGIN RSA PRIVATE KEY-----", "MIIEowIBAAKCAQEAcanary0123456789abcdefghij",
    "9Zq7canary9876543210zyxwvutsrqponm+/==", "-----END RSA PRIVATE KEY-----",
))  # fmt: skip

SECRETS = {
    "a variable": "5f2c9d0e7b6a41388c1d5f2c9d0e7b6a4138ca01",
    "a variable with blanks": "correct horse \"battery\" staple/9",
    "a short variable": "q7#a9",
    "a token by its form": "hf_CanaryCanaryCanaryCanaryCanary0042",
    "an AWS key id": "AKIA" + "CANARYCANARY0001",
    "an AWS secret key": "Canary/K7MDENG/bPxRfiCYEXAMPLEKEY+canary",
    "an AWS session token": "IQoJb3JpZ2luX2VjEJr//////////wEaCXVzLWNhbmFyeQ",
    "a password of a database's URL": "pg-canary-1",
    "a password of the index's URL": "p%2Fcanary-2",
    "a password of another index's URL": "canary-extra-3",
    "a private key": PEM,
    "JSON in a variable": "nested-canary-4",
    "a hyperparameter": "0a1b2c-canary-5",
    "a number as hyperparameter": "739184650283",
    "a nested hyperparameter": "client-canary-6",
    "a hyperparameter in a list": "listed canary 7",
    "a bearer token": "canary.Bearer-0123456789abcdef",
    "a word of a hyperparameter": "worded-canary-8",
    "a configuration file": "filed-canary-9",
    "the roll call's secret": "muster-canary-10",
    "an option of mpirun": "mpi-canary-11",
    "an argument": "argument canary 12",
    "a registry's login": "Y2FuYXJ5OmNhbmFyeS0xMw",
    "a name in camelCase": "camel-canary-14",
    "one of a list of variables": "item-canary-15",
}  # fmt: skip

HARMLESS = {
    "tokenizer_name": "google/flan-t5-xl", "max_tokens": "4096", "eos_token": "<|endoftext|>", "key_dim": "640000",
    "primary_key": "customer_id", "secretary": "margaret", "secret_name": "prod-database",
    "commit": "3b18e512dba79e4c8300dd08aeb37f8e728b8dad", "data": "s3://bucket/prefix/part-00000.parquet",
    "role": "arn:aws:iam::123456789012:role/Trainer", "mail": "ada@example.com",
}  # fmt: skip
"""More look-alikes are in tests/unit/base/test_masking.py."""


def variables(index: str) -> dict[str, str]:
    return {
        "WANDB_API_KEY": SECRETS["a variable"], "DB_PASSWORD": SECRETS["a variable with blanks"],
        "SMTP_PASS": SECRETS["a short variable"], "HUB": SECRETS["a token by its form"],
        "AWS_ACCESS_KEY_ID": SECRETS["an AWS key id"], "AWS_SECRET_ACCESS_KEY": SECRETS["an AWS secret key"],
        "AWS_SESSION_TOKEN": SECRETS["an AWS session token"],
        "DATABASE": "postgres://trainer:" + SECRETS["a password of a database's URL"] + "@db:5432/runs",
        "PIP_INDEX_URL": index.replace("://", "://aws:" + SECRETS["a password of the index's URL"] + "@"),
        "TLS_PRIVATE_KEY": PEM, "SERVICE": json.dumps({"db": {"password": SECRETS["JSON in a variable"]}}),
        "MUSTER_SECRET": SECRETS["the roll call's secret"],
        "DOCKER_AUTH_CONFIG": json.dumps({"auths": {"r.example": {"auth": SECRETS["a registry's login"] + "=="}}}),
    }  # fmt: skip


HYPERPARAMETERS: dict[str, Any] = {
    "api_key": SECRETS["a hyperparameter"],
    "token": int(SECRETS["a number as hyperparameter"]),
    "service": {"retries": 3, "client_secret": SECRETS["a nested hyperparameter"]},
    "endpoints": [{"url": "https://a.example", "access_token": SECRETS["a hyperparameter in a list"]}],
    "dbPassword": SECRETS["a name in camelCase"],
    "variables": [{"name": "HUB_TOKEN", "value": SECRETS["one of a list of variables"]}],
    "header": "Authorization: Bearer " + SECRETS["a bearer token"],
    "extra": f"--fast --password={SECRETS['a word of a hyperparameter']} --lr 1",
    "sagemaker_mpi_custom_mpi_options": f"-x GIT_TOKEN={SECRETS['an option of mpirun']} -x NCCL_DEBUG=INFO",
    **HARMLESS,
}


def leaks(text: str) -> list[str]:
    """The planted secrets that are in ``text``, in any spelling, also those of which only a part is."""
    found = []
    for what, secret in SECRETS.items():
        lines = [line for line in secret.splitlines() if not line.startswith("-----")]
        forms = {
            form
            for line in (secret, *lines)
            for form in (line, quote(line, safe=""), quote(line), json.dumps(line)[1:-1], repr(line)[1:-1])
        }
        words = [word for line in lines for word in line.replace('"', " ").split() if "canary" in word.lower() != word]
        if any(form in text for form in (*forms, *words)):
            found.append(what)
    return found


def ours(stream: bytes | str) -> str:
    """The lines that musterpoint wrote, with those indented under them."""
    kept, mine = [], False
    for line in (stream if isinstance(stream, str) else stream.decode(errors="replace")).splitlines():
        mine = "musterpoint: " in line or (mine and line.startswith("    "))
        if mine:
            kept.append(line)
    return "\n".join(kept)


def written(folder: Path) -> str:
    """Every report below ``folder``."""
    names = ("failure", "outcome.json", "timeline.json", "job.json", "success")
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*")) if path.name in names and path.is_file())


@pytest.fixture
def planted(installing: Train, index: MakeIndex) -> Train:
    """A host all of whose inputs hold secrets."""
    installing.environ.update(variables(index(password="p/canary-2").url))
    installing.environ.update({f"LIKE_{name.upper()}": value for name, value in HARMLESS.items()})
    installing.program("")
    configure(installing)
    job = {"TrainingJobName": "canaries", "vault": {"vault_token": SECRETS["a configuration file"]}}
    (installing.base / "input/config/trainingjobconfig.json").write_text(json.dumps(job))
    return installing


def configure(train: Train, **more: Any) -> None:
    words = {"sagemaker_program": "program.py", **HYPERPARAMETERS, **more}
    encoded = {
        name: value if isinstance(value, str) and "\0" in value else json.dumps(value) for name, value in words.items()
    }
    (train.base / "input/config/hyperparameters.json").write_text(json.dumps(encoded))


QUOTES = """
import json, os, sys
secret = [os.environ["WANDB_API_KEY"], os.environ["DB_PASSWORD"], os.environ["SMTP_PASS"], "pg-canary-1",
          "client-canary-6", "739184650283", os.environ["TLS_PRIVATE_KEY"].splitlines()[1], json.loads(sys.argv[-1])[0]]
raise ValueError(f"401 for {secret}: 'token: unknown word' tokenizer=bert-base-uncased max_tokens=4096 key_dim=640000")
"""


@pytest.mark.lane("suite")
def test_a_job_that_ends_well_and_one_that_quotes_secrets(planted: Train) -> None:
    planted.program("import sys; print(sys.argv)")
    configure(planted)
    done = planted.run()
    assert done.returncode == 0, done.stderr
    assert leaks(done.stdout.decode()) != [], "the program's own output was changed"
    assert leaks(ours(done.stderr) + written(planted.base)) == []

    planted.program(QUOTES)
    configure(planted, last='["filed-canary-9"]')
    done = planted.run()
    assert done.returncode == 1
    assert "a variable" in leaks(done.stderr.decode()), "the program's own output was changed"
    assert leaks(ours(done.stderr) + written(planted.base)) == []
    assert planted.reason.startswith("ValueError: 401 for ['***', '***', '***', '***', '***', '***', '***', '***']:")
    for word in ("token: unknown word", "tokenizer=bert-base-uncased", "max_tokens=4096", "key_dim=640000"):
        assert word in planted.reason
        assert word in ours(done.stderr)


BROKEN = """
import musterpoint.core.attempt, os, sys
def plan_host(job, options, ready, roster, environ):
    token = environ["DB_PASSWORD"]
    raise KeyError(token, dict(environ), job.hyperparameters)
musterpoint.core.attempt.plan_host = plan_host
from musterpoint.cli import train
sys.exit(train.main())
"""


def test_failures_of_our_own(planted: Train) -> None:
    """Nothing but our lines is on stderr here."""

    def fails(code: int, said: str, *words: str) -> None:
        (planted.base / "output/failure").unlink(missing_ok=True)
        command = [planted.python, *(words or ("-m", "musterpoint.cli.train"))]
        done = subprocess.run(command, env=planted.environ, cwd="/", capture_output=True, timeout=500, check=False)
        assert done.returncode == code, done.stderr
        assert said in planted.reason
        assert leaks(done.stderr.decode() + done.stdout.decode() + written(planted.base)) == [], planted.reason

    configure(planted, sagemaker_program="trian.py")
    fails(64, "'trian.py' isn't in")
    planted.environ["MUSTER_PYTHON"], python = SECRETS["a variable"], planted.environ["MUSTER_PYTHON"]
    configure(planted)
    fails(64, "can't execute ***: No such file")
    planted.environ["MUSTER_PYTHON"] = python
    configure(planted, api_key=SECRETS["a hyperparameter"] + "\0")
    fails(64, 'the hyperparameter "api_key" = "***')
    configure(planted, sagemaker_container_log_level=SECRETS["a hyperparameter"])
    fails(64, "sagemaker_container_log_level")
    config = planted.base / "input/config/hyperparameters.json"
    config.write_text('{"api_key": "0a1b2c-canary-5", }')
    fails(64, "isn't valid JSON")
    configure(planted)
    fails(70, "internal error, please report it: KeyError", "-c", BROKEN)
    planted.environ["MUSTER_ROLLCALL_TIMEOUT"] = SECRETS["a variable"]
    fails(64, "MUSTER_ROLLCALL_TIMEOUT")
    del planted.environ["MUSTER_ROLLCALL_TIMEOUT"]
    (planted.base / "code/program.py").unlink()
    configure(planted, sagemaker_submit_directory="https://me:argument%20canary%2012@a.example/code.tar.gz")
    fails(71, "https://me:***@a.example/code.tar.gz")


AT_BUILD = f"""{LOOKS}
print(os.environ["DB_PASSWORD"], "Bearer", "canary.Bearer-0123456789abcdef", "x" * 70_000 + os.environ["WANDB_API_KEY"])
raise RuntimeError(open(os.environ["NETRC"]).read().replace("\\n", " ") + os.environ["WANDB_API_KEY"])
"""


def test_an_install_that_fails(planted: Train, index: MakeIndex, tmp_path: Path) -> None:
    """pip and a build of it say every secret they were given; on no command line is any."""
    packages = index(
        backend(),
        sdist("mp-hushed", {"pyproject.toml": PYPROJECT.replace("NAME", "mp-hushed"), "at_build.py": AT_BUILD}),
        password="p/canary-2",
    )
    planted.environ.update(variables(packages.url))
    extra = packages.url.replace("://", "://other:canary-extra-3@").replace("127.0.0.1", "localhost")
    (planted.base / "code/requirements.txt").write_text(f"--extra-index-url {extra}\nmp-hushed\n")
    done = planted.run(SEEN=str(tmp_path / "seen"))
    assert done.returncode == 71, done.stderr
    seen = (tmp_path / "seen").read_text()
    assert "pip install" in seen
    said = done.stderr.decode()
    assert "RuntimeError" in planted.reason
    assert "x" * 70_000 in said
    assert leaks(said + written(planted.base)) == []
    assert [what for what in leaks(seen) if what != "a password of another index's URL"] == []


def test_what_people_look_at(planted: Train, tmp_path: Path) -> None:
    """``muster plan`` and ``muster env``: no secret, and every look-alike."""

    def muster(*words: str) -> str:
        command = [planted.python, "-m", "musterpoint", *words]
        done = subprocess.run(command, env=planted.environ, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert leaks(done.stderr) == []
        return done.stdout

    (tmp_path / "program.py").write_text("")
    arguments = ("program.py", "--api-key", SECRETS["an argument"], "--name", "client-canary-6", "--max-tokens", "4096")
    texts = [muster("plan"), muster("plan", "--json"), muster("plan", *arguments), muster("env")]
    values = ("--env", "VAULT_TOKEN=mpi-canary-11", "--hyperparameters", json.dumps(HYPERPARAMETERS))
    texts.append(muster("plan", "--hosts", "2", "--launcher", "ranks", *values, *arguments))
    for text in texts:
        assert leaks(text) == []
        assert "***" in text
    json.loads(texts[1])
    assert "--max-tokens 4096" in texts[2].replace("\n", " ") or "4096" in texts[2]
    for name, value in HARMLESS.items():
        assert f"SM_HP_{name.upper()}={value}\n" in texts[3]
        assert value in json.dumps(json.loads(texts[1])), name
    # what programs read has the values
    assert json.loads(muster("env", "--format", "json"))["SM_HP_API_KEY"] == SECRETS["a hyperparameter"]


@pytest.mark.lane("suite")
def test_a_local_job(local: Local) -> None:
    """Two hosts, a user's failure file of its own, and an error that quotes an argument and a variable."""
    local.environ.update(variables("http://127.0.0.1:9/simple/"))
    del local.environ["MUSTER_SECRET"]
    program = local.program(
        "import os, sys\nprint(sys.argv, os.environ['VAULT_TOKEN'])\n"
        "raise RuntimeError(f\"no login with {os.environ['VAULT_TOKEN']} or {sys.argv[-1]}, max_tokens=4096\")\n"
    )
    ran = local.run(
        "--hosts", "2", "--launcher", "ranks", "--backend", "process", "--env", "VAULT_TOKEN=mpi-canary-11",
        "--hyperparameters", json.dumps(HYPERPARAMETERS), program, "--api-key", SECRETS["an argument"],
    )  # fmt: skip
    assert ran.code == 1, ran.stderr
    assert ran.reason.startswith("RuntimeError: no login with *** or ***, max_tokens=4096")
    assert "argument canary 12" in ran.log("algo-1") + ran.log("algo-2")
    assert leaks(ours(ran.stderr) + ours(ran.stdout) + ours(ran.log("algo-1")) + ours(ran.log("algo-2"))) == []
    assert leaks(written(ran.output)) == []


def test_a_local_job_that_cannot_be(local: Local) -> None:
    program = local.program("")
    for words in (
        ("--env", "API TOKEN=mpi-canary-11", program),
        ("--env", "A_TOKEN=mpi-canary-11", "--env", "A_TOKEN=x", program),
        ("--hyperparameters", '{"api_key": "0a1b2c-canary-5"', program), ("--secret", "muster-canary-10", "none.py"),
        ("--hosts", "2", "--api-key", "0a1b2c-canary-5"),
        ("--job-name", "a/b", program, "--token", "argument canary 12"),
        ("--hyperparameters", '["--api-key", "0a1b2c-canary-5"]', program),
    ):  # fmt: skip
        ran = local.run(*words)
        assert ran.code == 64
        assert leaks(ran.stderr + ran.stdout) == []
