"""The platform's files and variables, malformed in every way: a job comes of them, or one clear sentence.

Whatever they hold, reading and planning the job ends in little time and memory with a plan or an error of musterpoint's
own, which names the file, variable or key. Nothing is started.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import tempfile
import time
import traceback
from typing import Any, Callable

from fuzzers import memory
from fuzzers.findings import MOST_WRONG, Findings
from musterpoint.base import exit_codes, settings
from musterpoint.base.errors import MusterError
from musterpoint.core.job.read import masker_of, masker_of_files, read_job
from musterpoint.core.launch.host_plan import plan_host
from musterpoint.core.launch.launcher import Wanted
from musterpoint.core.prepare import prepare_host
from musterpoint.tools.plans.drawing import draw
from musterpoint.tools.plans.page import Subject, page_of, to_json
from musterpoint.tools.plans.preview import assumed_roster

SECONDS = 20.0
"""For one input; a hundred times what one takes."""
MEBIBYTES = 900
"""For all of them together: a configuration file of 64 MiB, decoded, with room to spare."""
LONGEST_SENTENCE = 4000

PROGRAM = "train.py"
HYPERPARAMETERS: dict[str, Any] = {
    "sagemaker_program": '"train.py"', "sagemaker_submit_directory": "", "sagemaker_job_name": "job-1",
    "sagemaker_region": '"eu-west-1"', "sagemaker_container_log_level": "20", "epochs": "3", "lr": "0.1",
    "layers": "[1, 2]", "nested": '{"a": {"b": null}}', "flag": "true", "api_key": '"k3y-in-the-tree"',
    "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2",
    "sagemaker_mpi_custom_mpi_options": '"-x A=b --mca c d"', "sagemaker_torch_distributed_enabled": "false",
    "sagemaker_distributed_dataparallel_enabled": "false", "sagemaker_parameter_server_enabled": "false",
    "sagemaker_multi_worker_mirrored_strategy_enabled": "false", "sagemaker_distribution_instance_groups": '["one"]',
    "mp_parameters": '{"partitions": 2}', "model_dir": '"s3://bucket/x"', "_tuning_objective_metric": "loss",
    "sagemaker_s3_output": '"s3://bucket/out"', "sagemaker_instance_type": '"ml.p4d.24xlarge"',
}  # fmt: skip
FILES: dict[str, Any] = {
    "hyperparameters.json": HYPERPARAMETERS,
    "resourceconfig.json": {
        "current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0",
        "current_instance_type": "ml.p4d.24xlarge", "current_group_name": "one", "topology": None,
        "instance_groups": [
            {"instance_group_name": "one", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-1"]},
            {"instance_group_name": "two", "instance_type": "ml.c5.xlarge", "hosts": ["algo-2"]},
        ],
    },
    "inputdataconfig.json": {"train": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated"}},
    "checkpointconfig.json": {"S3Uri": "s3://bucket/c", "LocalPath": "/opt/ml/checkpoints"},
    "trainingjobconfig.json": {"TrainingJobName": "job-1", "TrainingJobArn": "arn:aws:sagemaker:eu-west-1:1:x/job-1"},
    "upstreamoutputdataconfig.json": [],
}  # fmt: skip
VARIABLES = {
    "SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1", "SM_HPS": '{"lr": 0.1}',
    "SM_FRAMEWORK_PARAMS": "{}", "SM_RESOURCE_CONFIG": '{"hosts": ["algo-1", "algo-2"], "current_host": "algo-1"}',
    "SM_INPUT_DATA_CONFIG": '{"train": {}}', "SM_CHANNELS": '["train"]', "SM_USER_ARGS": '["--lr", "0.1"]',
    "SM_USER_ENTRY_POINT": "train.py", "SM_MODEL_DIR": "/opt/ml/model", "SM_NETWORK_INTERFACE_NAME": "eth0",
    "SM_CURRENT_INSTANCE_TYPE": "ml.p4d.24xlarge", "SM_CURRENT_INSTANCE_GROUP": "one", "SM_NUM_GPUS": "8",
    "TRAINING_JOB_NAME": "job-1", "TRAINING_JOB_ARN": "arn:aws:sagemaker:eu-west-1:1:training-job/job-1",
    "SAGEMAKER_PROGRAM": "train.py", "AWS_REGION": "eu-west-1", "HF_TOKEN": "hf_in-the-environment",
}  # fmt: skip
OWN = {option.variable: option for option in settings.OPTIONS}
"""``MUSTER_*``: the options of a job that a plan reads."""

SCALARS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**63, 10**400, 1.5, -0.0, 1e308, float("inf"), float("nan"), "", " ", "\0", "a\0b",
    "\ud800", "\udcff", "é", "日本", "\u202e", "\x1b[2J", "a\nb", "-", "--", "..", "../../etc", "/", "=", "a=b",
    "{muster:agent}", "{muster:nothing}", "{}", "[]", "null", "true", "[1,", '{"a":', "9" * 5000, "1e999", "nan",
    "x" * 300, "x" * 140_000, "s3://b/k", "https://u:p@h/x.tar.gz", "algo-1", "algo-1 algo-2", "😀" * 50, "%s%n",
    "$(id)",
)  # fmt: skip
BYTES = (
    b"", b"{", b"}", b"nul", b"\xff\xfe{\0}\0", b"\xef\xbb\xbf{}", b"\xed\xa0\x80", b"[" * 200_000, b'{"a":' * 200_000,
    b"9" * 5000, b"-" * 10, b"1e400", b"NaN", b"Infinity", b'"\\ud800"', b'{"a": 1, "a": 2}', b"\0" * 64, b'"' * 3,
    b'{"hosts": ["a"' + b',"a"' * 1000 + b"]}", b"// a comment\n{}", b"{'single': 1}", b"\x80abc",
)  # fmt: skip


class Maker:
    """Malformed trees and environments, from one seed."""

    def __init__(self, dice: random.Random, base: str) -> None:
        self._dice, self._base = dice, base
        self._config = os.path.join(base, "input", "config")
        self.malformed: list[str] = []

    def tree(self) -> None:
        """Makes the input tree anew, with some files malformed."""
        shutil.rmtree(self._base, ignore_errors=True)
        for folder in (self._config, os.path.join(self._base, "code"), os.path.join(self._base, "output")):
            os.makedirs(folder)
        with open(os.path.join(self._base, "code", PROGRAM), "w", encoding="ascii"):
            pass
        if self._dice.random() < 0.15:
            self.malformed.append("no resourceconfig.json")
        strange = self._dice.choices((0, 1, 2), (2, 6, 2))[0]
        chosen = self._dice.sample(sorted(FILES), strange)
        for name, content in FILES.items():
            path = os.path.join(self._config, name)
            if name == "resourceconfig.json" and "no resourceconfig.json" in self.malformed:
                continue
            data = self._malformed(name, content, path) if name in chosen else _encoded(content)
            if data is not None:
                with open(path, "wb") as file:
                    file.write(data)

    def environment(self) -> dict[str, str]:
        environ = {
            "SAGEMAKER_BASE_DIR": self._base,
            "PATH": os.environ.get("PATH", "/bin:/usr/bin"),
            "HOME": self._base,
        }
        if self._dice.random() < 0.4:
            names = self._dice.sample(sorted(VARIABLES), self._dice.randint(1, len(VARIABLES)))
            for name in names:
                environ[name] = VARIABLES[name] if self._dice.random() < 0.7 else self._text(name)
        if self._dice.random() < 0.3:
            name = self._dice.choice(sorted(OWN))
            choices = OWN[name].choices
            environ[name] = self._dice.choice(choices) if choices and self._dice.random() < 0.5 else self._text(name)
        if self._dice.random() < 0.1:
            environ["MUSTER_PROGRAM_ARGS"] = self._text("MUSTER_PROGRAM_ARGS")
        # a launcher with a module of the user's Python would start that Python
        environ["MUSTER_LAUNCHER"] = self._dice.choice(("script", "ranks", "tensorflow", "parameter-server"))
        return environ

    def _text(self, name: str) -> str:
        """A variable's value, which the system could have given us."""
        value = self._value(2)
        text = value if isinstance(value, str) else json.dumps(value)
        try:
            text = os.fsencode(text.replace("\0", "")).decode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            text = "\udcff"
        self.malformed.append(f"{name}={text[:60]!r}")
        return text[:131_000]

    def _value(self, depth: int) -> Any:
        kind = self._dice.random()
        if depth and kind < 0.15:
            return [self._value(depth - 1) for _ in range(self._dice.randint(0, 3))]
        if depth and kind < 0.3:
            return {
                str(self._dice.choice(SCALARS))[:80]: self._value(depth - 1) for _ in range(self._dice.randint(0, 3))
            }
        return self._dice.choice(SCALARS)

    def _malformed(self, name: str, content: Any, path: str) -> bytes | None:
        """What the file holds; None where something that is no file was made in its place."""
        way = self._dice.random()
        if way < 0.12:
            self._no_file(name, path)
            return None
        if way < 0.22:
            data = self._dice.choice(BYTES)
            self.malformed.append(f"{name} is {data[:40]!r}")
            return data
        if way < 0.34:
            broken = bytearray(_encoded(content))
            for _ in range(self._dice.randint(1, 4)):
                at = self._dice.randrange(len(broken) + 1)
                broken[at : at + self._dice.randint(0, 3)] = self._dice.randbytes(self._dice.randint(0, 3))
            self.malformed.append(f"{name} has broken bytes")
            return bytes(broken[: self._dice.randint(0, len(broken))] if way < 0.28 else broken)
        changed = json.loads(json.dumps(content))
        for _ in range(self._dice.randint(1, 3)):
            changed = self._changed(changed, name)
        return _encoded(changed)

    def _changed(self, value: Any, where: str) -> Any:
        """``value`` with one thing in it replaced, removed or added."""
        if isinstance(value, dict) and value and self._dice.random() < 0.85:
            key = self._dice.choice(sorted(value))
            way = self._dice.random()
            if way < 0.1:
                self.malformed.append(f"{where}.{key} is missing")
                return {name: inner for name, inner in value.items() if name != key}
            if way < 0.2:
                added = str(self._dice.choice(SCALARS))
                self.malformed.append(f"{where} has {added[:40]!r}")
                return {**value, added: self._value(2)}
            return {**value, key: self._changed(value[key], f"{where}.{key}")}
        if isinstance(value, list) and value and self._dice.random() < 0.7:
            at = self._dice.randrange(len(value))
            return [*value[:at], self._changed(value[at], f"{where}[{at}]"), *value[at + 1 :]]
        new = self._value(3)
        if self._dice.random() < 0.03:
            new = self._deep()
        self.malformed.append(f"{where} is {repr(new)[:60]}")
        return json.dumps(new) if isinstance(value, str) and self._dice.random() < 0.5 else new

    def _deep(self) -> Any:
        value: Any = "in the deep"
        for _ in range(self._dice.choice((10, 300, 900))):
            value = [value] if self._dice.random() < 0.5 else {"k": value}
        return value

    def _no_file(self, name: str, path: str) -> None:
        def unix_socket() -> None:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(path)

        def large() -> None:
            with open(path, "wb") as file:
                file.truncate(1 << 36)

        ways: dict[str, Callable[[], object]] = {
            "missing": lambda: None, "a directory": lambda: os.mkdir(path), "a pipe": lambda: os.mkfifo(path),
            "a dangling link": lambda: os.symlink("nowhere", path), "a link to itself": lambda: os.symlink(name, path),
            "a device": lambda: os.symlink("/dev/zero", path), "a socket": unix_socket, "larger than memory": large,
        }  # fmt: skip
        way = self._dice.choice(sorted(ways))
        if len(path) > 100 and way == "a socket":
            way = "missing"
        ways[way]()
        self.malformed.append(f"{name} is {way}")


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def _too_long(signo: int, frame: Any) -> None:
    raise TimeoutError(f"no end after {SECONDS:g} s")


def _try(environ: dict[str, str], names: list[str]) -> str:
    """Reads and plans the job; what is wrong with what came of it, empty where nothing is."""
    try:
        try:
            options = settings.from_environ(environ)
            job = read_job(environ, options)
            ready = prepare_host(Wanted(job, options), environ)
            roster = assumed_roster(job, options, lambda host: 2, {})
            plan = plan_host(job, options, ready, roster, environ)
            masker = masker_of(environ, job)
            subject = Subject(job.name, job.entry_point.program, ready.choice.launcher, ready.choice.reason)
            notes = [note.text for note in job.notes]
            text = draw(page_of(subject, [plan], [plan], notes, masker, everything=True))
            json.dumps(to_json([plan], job.name, notes, masker))
            return "a secret is in the plan" if "k3y-in-the-tree" in text else ""
        except MusterError as error:
            sentence = masker_of_files(environ).mask(str(error))
            if error.code not in (exit_codes.USAGE, exit_codes.LAUNCHER, exit_codes.FETCH):
                return f"code {error.code}: {sentence}"
            if not any(name in sentence for name in names):
                return f"the sentence names no file, variable or key: {sentence}"
            if len(sentence) > LONGEST_SENTENCE:
                return f"a sentence of {len(sentence)} characters: {sentence[:200]}"
            return ""
    except TimeoutError as error:
        return f"{error}: {traceback.format_exc(limit=-3)}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}: {traceback.format_exc(limit=-2)[-400:]}"


def fuzz(seed: int, inputs: int) -> Findings:
    """Everything happens in this process, below a folder of its own."""
    dice = random.Random(seed)
    wrong: list[str] = []
    folder = tempfile.mkdtemp(prefix="muster-fuzz-")
    names = [
        *FILES,
        *VARIABLES,
        *OWN,
        *(option.flag for option in settings.OPTIONS),
        *HYPERPARAMETERS,
        "MUSTER_PROGRAM_ARGS",
        "hyperparameter",
        "the program",
    ]
    before = signal.signal(signal.SIGALRM, _too_long)
    tried = 0
    memory.forget_peak()
    try:
        for number in range(inputs):
            maker = Maker(dice, os.path.join(folder, "ml"))
            maker.tree()
            environ = maker.environment()
            tried += 1
            began = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, SECONDS * 5)
            said = _try(environ, names)
            signal.setitimer(signal.ITIMER_REAL, 0)
            taken = time.process_time() - began
            said = said or (f"it took {taken:.1f} s" if taken > SECONDS else "")
            if said:
                wrong.append(f"input {number} of seed {seed} ({'; '.join(maker.malformed)[:400]}): {said}")
            if len(wrong) >= MOST_WRONG:
                break
        most = memory.peak()
        if most > MEBIBYTES:
            wrong.append(f"it took {most} MiB of memory, expected at most {MEBIBYTES}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        shutil.rmtree(folder, ignore_errors=True)
    return Findings(tried, tuple(wrong))
