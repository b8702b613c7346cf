"""Recorded words of pip 23 to 26 and of uv 0.5 to 0.13, and the reason that is taken from each."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from musterpoint.core.code import installer_output
from musterpoint.core.code.installer_output import NEEDS, downgrades

MISSING = """
Looking in indexes: http://127.0.0.1:1/simple/
ERROR: Could not find a version that satisfies the requirement nope==9 (from versions: 1.0)
ERROR: No matching distribution found for nope==9
"""
CONFLICT = """
Collecting a==1
The conflict is caused by nothing yet
ERROR: Cannot install a==1 and b==1 because these package versions have conflicting dependencies.

The conflict is caused by:
    a 1 depends on c==1
    b 1 depends on c==2

Additional packages were considered.
To fix this you could try to:
1. loosen the range of package versions you've specified
    not this one
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/dependency-resolution/
"""
BUILD = """
Collecting flash-attn (from -r requirements.txt (line 3))
  Downloading flash_attn-2.8.tar.gz (8.4 MB)
  Preparing metadata (setup.py): started
  error: subprocess-exited-with-error

  × python setup.py egg_info did not run successfully.
  │ exit code: 1
  ╰─> [12 lines of output]
      Traceback (most recent call last):
        File "<string>", line 2, in <module>
      ModuleNotFoundError: No module named 'torch'
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
error: metadata-generation-failed

× Encountered error while generating package metadata.
╰─> flash-attn
"""


GIT = """
Collecting git+https://h/x.git
  Running command git clone --quiet https://h/x.git /tmp/b
  fatal: unable to access 'https://h/': no route
  error: subprocess-exited-with-error

  × git clone --quiet https://h/x.git /tmp/b did not run successfully.
  │ exit code: 128
  ╰─> See above for output.

  note: This error originates from a subprocess, and is likely not a problem with pip.
"""
ADVICE = "\n\n  Please make sure you have the correct access rights\n  and the repository exists."
NO_REPOSITORY = "ssh: connect to host h port 22: Connection refused\n  fatal: Could not read from remote repository."
HASHES = """
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, …
    six==1.16.0 from https://files/six-1.16.0-py2.py3-none-any.whl (from -r rq.txt (line 1)):
        Expected sha256 1e61
             Got        8abb
"""


def said_by_a_build(*lines: str, code: int = 1) -> str:
    """What pip makes of a build of ``thing`` that wrote ``lines``."""
    output = "".join(f"      {line}\n" for line in lines)
    return f"""
  Building wheel for thing (setup.py): started
  error: subprocess-exited-with-error

  × python setup.py bdist_wheel did not run successfully.
  │ exit code: {code}
  ╰─> [{len(lines)} lines of output]
{output}      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
"""


WORDY = said_by_a_build(
    "Traceback (most recent call last):", '  File "setup.py", line 9, in <module>', "RuntimeError:",
    "The detected CUDA version (11.8) mismatches the version that was used to compile", "PyTorch (12.1).",
)  # fmt: skip
INVALID = (
    "ERROR: Invalid requirement: 'foo=1.0': Expected semicolon (from line 3 of requirements.txt)\nHint: = is not ==\n"
)
MANAGED = """
error: externally-managed-environment

× This environment is externally managed
╰─> To install Python packages system-wide, try apt install
    python3-xyz, where xyz is the package you are trying to
    install.
note: If you believe this is a mistake, contact your Python installation.
"""
CONFIGURATION = """
Configuration file could not be loaded.
File contains no section headers.
file: '/etc/pip.conf', line: 1
'index-url = http://127.0.0.1/simple\\n'
"""
CRASH = """
ERROR: Exception:
Traceback (most recent call last):
  File "x.py", line 1, in <module>
AssertionError: egg_link_path is None
"""
UV_OLD = """
Using Python 3.11.7 environment at: v
  × No solution found when resolving dependencies:
  ╰─▶ Because there is no version of nope==9 and you require nope==9, we can
      conclude that your requirements are unsatisfiable.
      hint: pre-releases are available
"""
UV_NEW = """
Using Python 3.11.7 environment at: v
error: No solution found when resolving dependencies
  cause: Because there is no version of nope==9 and you require nope==9, we can conclude it.
"""
UV_BUILD = """
  × Failed to build `thing==1.0`
  ├─▶ The build backend returned an error
  ╰─▶ Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)
"""
NEW_PIP = "ERROR: pip's dependency resolver does not currently take into account all the packages\nERROR: boom\n"

SENTENCES = {
    "missing": (MISSING, "Could not find a version that satisfies the requirement nope==9 (from versions: 1.0); "
                         "No matching distribution found for nope==9"),
    "conflict": (CONFLICT, "Cannot install a==1 and b==1 because these package versions have conflicting dependencies. "
                           "a 1 depends on c==1; b 1 depends on c==2"),
    "build": (BUILD, "flash-attn: python setup.py egg_info did not run successfully: "
                     "ModuleNotFoundError: No module named 'torch'"),
    "a compiler's error, raised": (
        said_by_a_build("x.c:1:10: fatal error: cuda.h: No such file", "Traceback:", "RuntimeError: Error compiling"),
        "thing: python setup.py bdist_wheel did not run successfully: x.c:1:10: fatal error: cuda.h: No such file; "
        "RuntimeError: Error compiling",
    ),
    "an exception of many lines": (
        WORDY, "thing: python setup.py bdist_wheel did not run successfully: RuntimeError: The detected CUDA version "
        "(11.8) mismatches the version that was used to compile PyTorch (12.1).",
    ),
    "a build that was killed": (said_by_a_build(code=-9),
     "thing: python setup.py bdist_wheel did not run successfully: no output, exit code: -9"),
    "invalid": (INVALID, "Invalid requirement: 'foo=1.0': Expected semicolon (from line 3 of requirements.txt)"),
    "managed": (MANAGED, "This environment is externally managed To install Python packages system-wide, try apt "
                         "install python3-xyz, where xyz is the package you are trying to install."),
    "configuration": (CONFIGURATION, "Configuration file could not be loaded. File contains no section headers. "
                                     "file: '/etc/pip.conf', line: 1"),
    "crash": (CRASH, "AssertionError: egg_link_path is None"),
    "uv": (UV_OLD, "No solution found when resolving dependencies: Because there is no version of nope==9 and you "
                   "require nope==9, we can conclude that your requirements are unsatisfiable."),
    "new uv": (UV_NEW, "No solution found when resolving dependencies; Because there is no version of nope==9 and you "
                       "require nope==9, we can conclude it."),
    "uv's build": (UV_BUILD, "Failed to build `thing==1.0` The build backend returned an error Call to "
                             "`setuptools.build_meta.build_wheel` failed (exit status: 1)"),
    "git": (GIT, "git clone --quiet https://h/x.git /tmp/b did not run successfully: fatal: unable to access "
                 "'https://h/': no route"),
    "git's advice": (
        GIT.replace("fatal: unable to access 'https://h/': no route", NO_REPOSITORY + ADVICE),
        f"git clone --quiet https://h/x.git /tmp/b did not run successfully: {NO_REPOSITORY}".replace("\n ", ";")),
    "hashes": (HASHES, "six==1.16.0 isn't the one that the requirements name: expected sha256 1e61, got 8abb"),
    "other": (NEW_PIP, "boom"),
    "nothing like an error": ("one\ntwo\n\n", "two"),
    "nothing": ("", "it said nothing"),
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_the_sentence_that_helps(name: str) -> None:
    text, reason = SENTENCES[name]
    assert installer_output.reason(text.splitlines()) == reason


def test_a_sentence_is_not_endless() -> None:
    found = installer_output.reason(["ERROR: " + "\u00e4" * 5000])
    assert len(found.encode()) <= installer_output.LIMIT
    assert found.endswith("…")


RETRYING = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, status=None)) after connection broken by "
    "'NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f>: Failed to establish a new "
    "connection: [Errno 111] Connection refused')': /simple/nope/"
)
FETCH = (
    "  Could not fetch URL http://h/simple/x/: 503 Server Error: Service Unavailable for url: http://h/simple/x/ - "
    "skipping"
)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (RETRYING, "Failed to establish a new connection: [Errno 111] Connection refused"),
        (FETCH, "http://h/simple/x/: 503 Server Error: Service Unavailable for url: http://h/simple/x/"),
        ("WARNING: x after connection broken by 'ReadTimeoutError(\"HTTPSConnectionPool: Read timed out.\")': /s",
         "ReadTimeoutError(\"HTTPSConnectionPool: Read timed out."),
        ("  cause: error sending request for url (http://127.0.0.1:9/)",
         "cause: error sending request for url (http://127.0.0.1:9/"),
        ("Could not fetch URL http://h/x: 404 Client Error: Not Found for url: http://h/x - skipping", ""),
        ("ERROR: No matching distribution found for nope", ""),
    ],
)  # fmt: skip
def test_the_network(line: str, words: str) -> None:
    assert installer_output.network_words(["something else", line]).rstrip("'\"():/s ") == words.rstrip("/")


def test_what_else_is_told_from_the_lines() -> None:
    assert installer_output.found_nothing(["ERROR: Could not find a version of x (from versions: none)"])
    assert not installer_output.found_nothing(MISSING.splitlines())
    assert installer_output.lacks_build_tools(
        ["  × pip subprocess to install build dependencies did not run successfully."]
    )
    assert not installer_output.lacks_build_tools(BUILD.splitlines())


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["Successfully installed boto3-1.20.5 rich-13.9 docker_py-1.5 a-b-2.0"],
         ["warning: boto3 1.20.5 was installed; code from S3 and packages from CodeArtifact needs 1.34 or newer"]),
        (
            ["  Attempting uninstall: nvidia-ml-py", "    Found existing installation: nvidia-ml-py 13.580.82",
             "Successfully installed nvidia_ml_py-11.5"],
            ["warning: nvidia_ml_py 11.5 was installed in place of 13.580.82; watching the GPUs needs 12 or newer"],
        ),
        (
            ["    Found existing installation: boto3 1.40.1", "Successfully installed boto3-1.34.0 torch-2.13.0+cpu"],
            ["boto3 1.34.0 was installed in place of 1.40.1, which is older; it is new enough for code from S3 and "
             "packages from CodeArtifact (1.34)"],
        ),
        ([" - rich==14.0", " + rich==9.0"],
         ["warning: rich 9.0 was installed in place of 14.0; the tables and pictures of muster needs 13 or newer"]),
        (["    Found existing installation: rich 13.1", "Successfully installed rich-14.0"], []),
        ([" - rich==9.0"], []),
        (["Requirement already satisfied: rich==9.0", "Successfully installed", "", "- a == b"], []),
    ],
)  # fmt: skip
def test_what_is_told(lines: list[str], told: list[str]) -> None:
    assert downgrades(lines) == told


def test_the_oldest_versions_are_those_of_the_extras(root: Path) -> None:
    extras = configparser.ConfigParser()
    extras.read(root / "setup.cfg")
    listed = {}
    for name, text in extras["options.extras_require"].items():
        if name not in ("all", "dev", "sagemaker-training", "serve"):  # whichever calls us will do; no part of a job
            listed.update(line.strip().split(">=") for line in text.splitlines() if ">=" in line)
    assert listed == {name: need.version for name, need in NEEDS.items()}
