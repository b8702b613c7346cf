"""Log rules as people write them: HyperPod's own, ours, and mistakes, which name the file, the rule and the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.base.toml import tomllib
from musterpoint.core.job.log_rules import LogRule, as_json, check_channel, read_log_rules, to_json

# as in AWS's "Using the training operator to run jobs"
HYPERPOD: list[dict[str, Any]] = [
    {"name": "JobStart", "logPattern": ".*Experiment configuration.*", "expectedStartCutOffInSeconds": 120},
    {
        "name": "JobHangingDetection",
        "logPattern": r".*\[Epoch 0 Batch \d+.*'training_loss_step': (\d+(\.\d+)?).*",
        "expectedRecurringFrequencyInSeconds": 300, "expectedStartCutOffInSeconds": 600,
    },
    {
        "name": "LowThroughputDetection", "logPattern": r".*\[Epoch 0 Batch \d+.*'samples\/sec': (\d+(\.\d+)?).*",
        "metricThreshold": 80, "operator": "lteq", "metricEvaluationDataPoints": 25,
    },
    {"name": "Fault", "logPattern": ".*Xid.*", "faultOnMatch": True, "stopPattern": ".*done.*"},
]  # fmt: skip
READ = (
    LogRule("JobStart", ".*Experiment configuration.*", start=120),
    LogRule("JobHangingDetection", HYPERPOD[1]["logPattern"], start=600, recurring=300),
    LogRule("LowThroughputDetection", HYPERPOD[2]["logPattern"], threshold=80, operator="lteq", points=25),
    LogRule("Fault", ".*Xid.*", fault=True, stop=".*done.*"),
)
RULE = {"name": "r", "logPattern": "x"}


@pytest.mark.parametrize(
    "given",
    [
        HYPERPOD,
        {"logMonitoringConfiguration": HYPERPOD},
        {"kind": "HyperPodPyTorchJob", "spec": {"runPolicy": {"logMonitoringConfiguration": HYPERPOD}}},
    ],
)
def test_hyperpods_own_json_is_taken_as_it_stands(given: Any, tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(given))
    assert read_log_rules(str(tmp_path / "rules.json")) == READ
    assert read_log_rules("rules.json", str(tmp_path)) == READ  # beside the code
    assert read_log_rules(json.dumps(given)) == READ
    assert read_log_rules(as_json("rules.json", str(tmp_path))) == READ
    assert [LogRule(**each) for each in json.loads(to_json(READ))] == list(READ)


def test_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rules.toml"
    file.write_text("[[logMonitoringConfiguration]]\nname = 'r'\nlogPattern = '.*x'\nranks = [3, 0, 3]\n")
    if tomllib is not None:
        assert read_log_rules(str(file)) == (LogRule("r", ".*x", ranks=(0, 3)),)
    monkeypatch.setattr("musterpoint.core.job.log_rules.tomllib", None)
    with pytest.raises(UsageError, match=r"TOML needs Python 3\.11"):
        read_log_rules(str(file))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "rule 1: name is '', expected a name"),
        ({"logPattern": "("}, "rule 'r': logPattern is '(', expected a regular expression of Python (missing )"),
        ({"logPattern": None}, "rule 'r': logPattern is None, expected a text"),
        ({"expectedStartCutOffInSeconds": 0}, "InSeconds is 0, expected a number of seconds above 0"),
        ({"expectedRecurringFrequencyInSeconds": "soon"}, "is 'soon', expected a number of seconds above 0"),
        ({"expectedRecurringFrequencyInSeconds": True}, "is True, expected a number of seconds above 0"),
        ({"metricThreshold": 1}, "rule 'r': operator is None, expected one of gt, gteq, lt, lteq, eq, together with"),
        ({"operator": "gt"}, "rule 'r': operator is 'gt', expected one of"),
        ({"operator": ">", "metricThreshold": 1}, "rule 'r': operator is '>', expected one of"),
        ({"operator": "gt", "metricThreshold": 1}, "rule 'r': logPattern is 'x', expected a group"),
        ({"operator": "gt", "metricThreshold": "nan"}, "metricThreshold is 'nan', expected a number"),
        ({"metricEvaluationDataPoints": 1.5}, "metricEvaluationDataPoints is 1.5, expected a whole number"),
        ({"faultOnMatch": "yes"}, "faultOnMatch is 'yes', expected true or false"),
        ({"ranks": "one"}, "ranks is 'one', expected any, all, a global rank, or a list"),
        ({"ranks": [-1]}, "ranks is [-1], expected any, all"),
        ({"stopPattern": "*"}, "stopPattern is '*', expected a regular expression of Python (nothing to repeat"),
        ({"logpattern": "x"}, "rule 'r' has an unknown key 'logpattern', expected name, logPattern,"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_log_rules(json.dumps([{**RULE, **change}]))
    assert str(error.value).startswith("--log-rules: ")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- name: r\n  logPattern: x\n", "it is no JSON: Expecting value: line 1 column 1 (char 0) (YAML isn't read"),
        ("[]", "expected a list of 1 to 64 rules"),
        ("[1]", "rule 1 is int, expected an object with name and logPattern"),
        (json.dumps([RULE, RULE]), "two rules are called 'r'"),
        ('{"spec": {}}', "expected a list of 1 to 64 rules"),
        ("\xff", "it is not UTF-8 (at byte 0)"),
    ],
)
def test_a_wrong_file_is_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as error:
        read_log_rules(str(file))
    assert str(error.value).startswith(f"--log-rules {file}: ")
    assert said in str(error.value)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"it can't be read: No such file or directory; expected a file with rules"):
        read_log_rules("nowhere.json", str(tmp_path))
    with pytest.raises(UsageError, match="it is a directory, expected a regular file"):
        read_log_rules(str(tmp_path))
    assert as_json("nowhere.json", str(tmp_path)) == "nowhere.json"


KEYS = st.sampled_from([*HYPERPOD[1], *HYPERPOD[3], "spec", "ranks"])


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=12))  # fmt: skip
def test_any_json_is_rules_or_a_mistake(value: Any) -> None:
    try:
        read_log_rules("[" + json.dumps(value) + "]")
    except UsageError:
        pass


def test_a_line_of_any_rank_needs_the_channel() -> None:
    check_channel(READ, 1, "off")
    check_channel(READ, 2, "full")
    check_channel((READ[0]._replace(ranks="all"), *READ[2:]), 2, "off")
    with pytest.raises(UsageError, match=r"--rollcall names: log rule 'JobStart' asks for a line of any rank"):
        check_channel(READ, 2, "names")


def test_what_a_plan_says() -> None:
    assert [rule.described() for rule in READ[:1]] == [
        "log rule JobStart: a line of any rank that matches '.*Experiment configuration.*' must come within 120 s of "
        "the start"
    ]
    said = LogRule("b", r"loss (\S+)", threshold=2.5, operator="gteq", points=3, stop="end", ranks=(0, 8)).described()
    assert said == (
        "log rule b: a line of ranks 0, 8 that matches 'loss (\\\\S+)' is a fault when its number is at or above 2.5 "
        "in 3 such lines of a rank in a row, or nan; off after a line that matches 'end'; it matches from a line's "
        "beginning only: write .* before it to find it anywhere"
    )
    assert "the rule ends nothing" in LogRule("n", ".*x").described()
