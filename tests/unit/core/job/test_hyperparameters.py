from __future__ import annotations

import json
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.base.executables import LONGEST_WORD
from musterpoint.base.settings import Settings
from musterpoint.core.job.exports import sagemaker_exports
from musterpoint.core.job.hyperparameters import (
    decode,
    from_value,
    text_value,
    to_arguments,
    values,
    with_own_model_dir,
)
from musterpoint.core.job.sagemaker_files import read_tree

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("sent", "value"),
    [
        ('"abc"', "abc"),  # SDK v2
        ("abc", "abc"),  # SDK v3
        ("3", 3),
        ("1.10", 1.1),
        ("1e5", 100000.0),
        ("true", True),
        ("True", "True"),  # a generic Estimator without code
        ("null", None),
        ("007", "007"),
        ('{"a": 1}', {"a": 1}),
        ("{broken", "{broken"),
        ("", ""),
        ("9" * 5000, "9" * 5000),
        ("[" * 100_000, "[" * 100_000),
        (3, 3),
        (None, None),
        ([1], [1]),
    ],
)
def test_json_else_raw(sent: Any, value: Any) -> None:
    (entry,) = decode({"k": sent}, "hyperparameters.json")
    assert entry.value == value
    assert entry.raw == (sent if isinstance(sent, str) else json.dumps(sent))


@pytest.mark.parametrize(
    ("hyperparameters", "arguments"),
    [
        ({"b": "1", "alpha": "2"}, ("-b", "1", "--alpha", "2")),  # file order, one letter one dash
        ({"flag": "true", "off": "false", "none": "null"}, ("--flag", "True", "--off", "False", "--none", "")),
        ({"d": '{"b": 1, "a": [1, 2]}'}, ("-d", "a=[1, 2],b=1")),
        ({"list": '["x", 1]'}, ("--list", "['x', 1]")),
        ({"x": "1e5", "y": "1.10"}, ("-x", "100000.0", "-y", "1.1")),
        ({"sagemaker_program": '"t.py"', "_tuning_objective_metric": "m", "model_dir": '"s3://b"'},
         ("--model_dir", "s3://b")),
        ({"mp_parameters": '{"ddp": true, "auto": null}'}, ("--mp_parameters", "auto=None,ddp=True")),
        ({"sagemaker": "x", "default_user_module_name": "m"}, ("--sagemaker", "x", "--default_user_module_name", "m")),
        ({"": "x"}, ("", "x")),
    ],
)  # fmt: skip
def test_spelled_as_sagemaker_training(hyperparameters: dict[str, str], arguments: tuple[str, ...]) -> None:
    assert to_arguments(decode(hyperparameters, "h")) == arguments


def test_json_style_keeps_strings_and_encodes_the_rest() -> None:
    sent = {"s": '"a b"', "flag": "true", "none": "null", "d": '{"b": 1, "a": null}', "twice": '"[1,2]"'}
    assert to_arguments(decode(sent, "h"), "json") == (
        "--s", "a b", "--flag", "true", "--none", "null", "--d", '{"b": 1, "a": null}', "--twice", "[1, 2]",
    )  # fmt: skip


@pytest.mark.parametrize("style", ["sagemaker", "json"])
def test_hidden_names_are_arguments_where_everything_is(style: str) -> None:
    sent = decode({"sagemaker_recipe_local_path": "r.yaml", "_tuning_objective_metric": "loss", "lr": "1"}, "h")
    assert to_arguments(sent, style) == ("--lr", "1")
    words = ("--sagemaker_recipe_local_path", "r.yaml", "--_tuning_objective_metric", "loss", "--lr", "1")
    assert to_arguments(sent, style, everything=True) == words


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_what_no_argument_can_hold_is_an_error_with_its_name(value: str) -> None:
    with pytest.raises(UsageError, match=r'the hyperparameter "text" = .* can\'t be an argument'):
        to_arguments(decode({"text": value}, "h"))


@pytest.mark.parametrize("value", ["x" * LONGEST_WORD, "é" * (LONGEST_WORD // 2)])
def test_the_longest_argument_there_can_be(value: str) -> None:
    assert to_arguments(decode({"text": value}, "h")) == ("--text", value)
    with pytest.raises(UsageError, match=r'the hyperparameter "text" is 131,07\d bytes long, expected at most 131,071'):
        to_arguments(decode({"text": value + "é"}, "h"))


@pytest.mark.parametrize("name", ["sagemaker_program", "sagemaker_job_name", "sagemaker_region", "model_dir"])
def test_a_name_or_path_that_is_none(name: str) -> None:
    with pytest.raises(UsageError, match=f"the hyperparameter {name} is 131,072 bytes long"):
        text_value(decode({name: "x" * (LONGEST_WORD + 1)}, "h"), name)


@pytest.mark.parametrize(("sent", "text"), [('"t.py"', "t.py"), ("t.py", "t.py"), ("null", ""), ("12", "12")])
def test_text_of_takes_quoted_and_raw(sent: str, text: str) -> None:
    assert text_value(decode({"p": sent}, "h"), "p") == text
    assert text_value(decode({"p": sent}, "h"), "q") == ""


def test_values_of_a_toolkit_are_not_decoded_twice() -> None:
    assert from_value("k", "1.10").value == "1.10"
    assert from_value("k", [1]).raw == "[1]"


@given(st.dictionaries(st.text(), JSON_VALUES | st.text()))
def test_only_usage_errors_come_out(config: dict[str, Any]) -> None:
    entries = decode(config, "h")
    assert list(values(entries)) == list(config)
    for style in ("sagemaker", "json"):
        try:
            words = to_arguments(entries, style)
        except UsageError:
            continue
        assert len(words) % 2 == 0


TUNED = {"_tuning_objective_metric": "loss"}
TOOLKIT = {"SAGEMAKER_TRAINING_MODULE": "sagemaker_tensorflow_container.training:main"}


@pytest.mark.parametrize(
    ("sent", "environ", "expected"),
    [
        # every job of a tuning job is sent the same place
        ({**TUNED, "model_dir": "s3://b/out/tune/model"}, TOOLKIT, "s3://b/out/tune/model/tune-007/model"),
        ({**TUNED, "model_dir": '"s3://b/mine"'}, TOOLKIT, "s3://b/mine/tune-007/model"),
        ({**TUNED, "model_dir": "/opt/ml/model"}, TOOLKIT, "/opt/ml/model"),
        ({**TUNED, "model_dir": "/mnt/efs/model"}, TOOLKIT, "/mnt/efs/model/tune-007/model"),
        ({"model_dir": "s3://b/out/job/model"}, TOOLKIT, "s3://b/out/job/model"),
        # known as the estimator's without its toolkit
        ({**TUNED, "model_dir": "s3://b/m", "sagemaker_estimator_class_name": '"TensorFlow"'}, {},
         "s3://b/m/tune-007/model"),
        ({**TUNED, "model_dir": "s3://b/tf-1/model", "sagemaker_job_name": '"tf-1"'}, {},
         "s3://b/tf-1/model/tune-007/model"),
        # a hyperparameter of the user's own
        ({**TUNED, "model_dir": "s3://b/m", "sagemaker_job_name": '"tf-1"'}, {}, "s3://b/m"),
        ({**TUNED, "model_dir": "s3://b/m"}, {"SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container"}, "s3://b/m"),
        ({**TUNED}, TOOLKIT, ""),
    ],
)  # fmt: skip
def test_where_the_model_goes(sent: dict[str, Any], environ: dict[str, str], expected: str) -> None:
    found = with_own_model_dir(decode(sent, "hyperparameters.json"), "tune-007", environ)
    assert text_value(found, "model_dir") == expected
    assert [entry.name for entry in found] == list(sent)


def test_the_program_and_its_variables_see_the_same(write_tree: Callable[..., str]) -> None:
    sent = {**TUNED, "epochs": "3", "model_dir": '"s3://b/out/model"', "sagemaker_program": '"t.py"'}
    job = read_tree(write_tree(hyperparameters=sent), {**TOOLKIT, "TRAINING_JOB_NAME": "tune-007"}, Settings())
    assert job.arguments == ("--epochs", "3", "--model_dir", "s3://b/out/model/tune-007/model")
    assert dict(sagemaker_exports(job, {}))["SM_HP_MODEL_DIR"] == "s3://b/out/model/tune-007/model"
