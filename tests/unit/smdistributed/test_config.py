"""Parameters of model parallelism: every source, every type, every rule."""

from __future__ import annotations

import importlib
import itertools
import json
from pathlib import Path
from typing import Any, Callable

import pytest

from .conftest import Modules

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def config(modelparallel: Modules) -> Any:
    return modelparallel("torch.config")


@pytest.fixture(scope="module")
def table(modelparallel: Modules) -> Any:
    modelparallel("torch.config")
    return importlib.import_module("smdistributed.shared.parameters").VERSION_1


@pytest.fixture
def read(config: Any, tmp_path: Path) -> Callable[..., Any]:
    """Reads a job whose platform has no files."""

    def read(given: dict[str, Any] | None = None, *argv: str, **environ: str) -> Any:
        return config.read({"SAGEMAKER_BASE_DIR": str(tmp_path), **environ}, argv, given)

    return read


Read = Callable[..., Any]


def test_defaults(table: Any, read: Read) -> None:
    found = read()
    for parameter in table.values():
        if parameter.default is not None:
            assert getattr(found, parameter.name) == parameter.default
    assert (found.partitions, found.active_microbatches, found.memory_weight) == (1, 3, 0.8)
    assert read({"partitions": 4, "optimize": "speed"}).active_microbatches == 6
    assert read({"optimize": "speed"}).memory_weight == 0.2
    assert found.where("microbatches") == "the default"
    assert found.unknown == ()


def written(place: str, values: dict[str, Any], base: Path) -> tuple[dict[str, str], tuple[str, ...], dict[str, Any]]:
    """Environment, arguments and the script's dict that have the parameters in one place."""
    text = json.dumps(values)
    if place == "file":
        (base / "input" / "config").mkdir(parents=True, exist_ok=True)
        (base / "input" / "config" / "hyperparameters.json").write_text(json.dumps({"mp_parameters": text, "lr": "1"}))
    return (
        {
            "SM_HP_MP_PARAMETERS": {"SM_HP_MP_PARAMETERS": text},
            "SM_HPS": {"SM_HPS": json.dumps({"mp_parameters": values, "lr": 1})},
            "SM_TRAINING_ENV": {"SM_TRAINING_ENV": json.dumps({"hyperparameters": {"mp_parameters": values}})},
        }.get(place, {}),
        ("--lr", "1", "--mp_parameters", ",".join(f"{name}={value}" for name, value in values.items()))
        if place == "argv"
        else (),
        values if place == "script" else {},
    )


PLACES = {
    "SM_HP_MP_PARAMETERS": "SM_HP_MP_PARAMETERS",
    "SM_HPS": "mp_parameters in SM_HPS",
    "SM_TRAINING_ENV": "mp_parameters in SM_TRAINING_ENV",
    "file": "mp_parameters in {base}/input/config/hyperparameters.json",
    "argv": "--mp_parameters",
    "script": "smp.init",
}
"""From the one that counts most."""


@pytest.mark.parametrize(("higher", "lower"), list(itertools.combinations(PLACES, 2)))
def test_what_the_job_says_counts_more_than_the_script(config: Any, tmp_path: Path, higher: str, lower: str) -> None:
    environ, argv, given = {"SAGEMAKER_BASE_DIR": str(tmp_path)}, (), {}
    for place, values in ((higher, {"microbatches": 4}), (lower, {"microbatches": 2, "ddp": True})):
        more, words, script = written(place, values, tmp_path)
        environ, argv, given = {**environ, **more}, (*argv, *words), {**given, **script}
    found = config.read(environ, argv, given)
    assert (found.microbatches, found.ddp) == (4, True)
    names = {place: name.format(base=tmp_path) for place, name in PLACES.items()}
    assert (found.where("microbatches"), found.where("ddp")) == (names[higher], names[lower])


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("--mp_parameters", "auto_partition=True,ddp=True,microbatches=8,partitions=2"),
         {"auto_partition": True, "ddp": True, "microbatches": 8, "partitions": 2}),
        (("--mp_parameters=memory_weight=0.3,pipeline=simple",), {"memory_weight": 0.3, "pipeline": "simple"}),
        (("--mp_parameters", "a={'b': 1, 'c': [2, 3]},microbatches=2"),
         {"a": {"b": 1, "c": [2, 3]}, "microbatches": 2}),
        (("--mp_parameters", '{"microbatches": 2}'), {"microbatches": 2}),
        (("--mp_parameters", ""), {}),
        (("--mp_parameters",), {}),
        (("--mp", "microbatches=2"), {}),
    ],
)  # fmt: skip
def test_the_command_lines_spelling(read: Read, argv: tuple[str, ...], expected: dict[str, Any]) -> None:
    found = read(None, *argv)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.microbatches == expected.get("microbatches", 1)


@pytest.mark.parametrize("text", ["", "{}", "null", ' "{}" ', '"{\\"microbatches\\": 1}"'])
def test_parameters_that_say_nothing(read: Read, text: str) -> None:
    assert read(SM_HP_MP_PARAMETERS=text).microbatches == 1


def test_what_the_command_line_lost_does_not_matter_where_the_whole_is_there(read: Read) -> None:
    argv = ("--mp_parameters", "auto_partition,True")
    with pytest.raises(ValueError, match=r"--mp_parameters 'auto_partition,True': .* isn't name=value"):
        read(None, *argv)
    assert read(None, *argv, SM_HP_MP_PARAMETERS='{"microbatches": 2}').microbatches == 2


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"partitions": 2}, 2),
        ({"pipeline_parallel_degree": "4"}, 4),
        ({"partitions": 2, "pipeline_parallel_degree": 4}, 4),
        ({"partitions": 2, "pipeline_parallel_degree": None}, 2),
    ],
)
def test_two_names_of_the_number_of_partitions(read: Read, given: dict[str, Any], found: int) -> None:
    config = read(given)
    assert config.partitions == config.pipeline_parallel_degree == found
    assert read({"partitions": 8}, SM_HP_MP_PARAMETERS=json.dumps(given)).partitions == found


def test_null_is_as_if_it_were_not_there(read: Read) -> None:
    nothing = '{"microbatches": null, "ddp_port": null, "partitions": null}'
    found = read({"microbatches": 2, "partitions": 2}, SM_HP_MP_PARAMETERS=nothing)
    assert (found.microbatches, found.ddp_port, found.partitions) == (2, None, 2)


def test_unknown_parameters_are_kept(read: Read) -> None:
    found = read({"strange": {"a": 1}}, SM_HP_MP_PARAMETERS='{"other": null}')
    assert (found.strange, found.other, set(found.unknown)) == ({"a": 1}, None, {"strange", "other"})


@pytest.mark.parametrize(
    ("value", "as_flag", "as_count"),
    [
        (True, True, None), (False, False, None), ("True", True, None), ("false", False, None), ("1", True, 1),
        (1, True, 1), (0, False, None), (2, None, 2), ("2", None, 2), (2.0, None, 2), (2.5, None, None),
        ("yes", None, None), ([1], None, None), ("", None, None), (float("nan"), None, None),
        (-1, None, None), (float("inf"), None, None),
    ],
)  # fmt: skip
def test_types(read: Read, value: Any, as_flag: bool | None, as_count: int | None) -> None:
    for name, expected in (("ddp", as_flag), ("microbatches", as_count)):
        if expected is not None:
            assert getattr(read({name: value}), name) == expected
            continue
        with pytest.raises(ValueError) as caught:
            read({name: value})
        assert str(caught.value).startswith(f"{name}={value!r} (smp.init): expected ")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pipeline": "1f1b"}, "pipeline='1f1b' (smp.init): expected interleaved or simple"),
        ({"optimize": 1}, "optimize=1 (smp.init): expected memory or speed"),
        ({"placement_strategy": "DDT"}, "placement_strategy='DDT' (smp.init): expected cluster, spread or an order"),
        ({"memory_weight": 1.5}, "memory_weight=1.5 (smp.init): expected a number from 0 to 1"),
        ({"default_partition": 2, "partitions": 2}, "default_partition=2 (smp.init): expected less than "
         "pipeline_parallel_degree=2 (smp.init)"),
        ({"ddp_port": 8000}, "ddp_port=8000 (smp.init): it needs ddp to be set as well, and ddp=False (the default)"),
        ({"ddp_dist_backend": "nccl"}, "ddp_dist_backend='nccl' (smp.init): it needs ddp"),
        ({"tensor_parallel_degree": 2}, "tensor_parallel_degree=2 (smp.init): it needs ddp to be set as well"),
        ({"load_partition": True}, "load_partition=True (smp.init): it needs partition_file, the file to load"),
        ({"sharded_data_parallel_degree": 2}, "sharded_data_parallel_degree=2 (smp.init): it needs ddp to be set"),
        ({"sharded_data_parallel_degree": 2, "ddp": True, "partitions": 2}, "sharded_data_parallel_degree=2 (smp.init) "
         "doesn't go with pipeline_parallel_degree=2 (smp.init): set it to 1"),
        ({"partitions": 0}, "partitions=0 (smp.init): expected a whole number, 1 or more"),
        ({"partitionz": 2}, "partitionz=2 (smp.init): no parameter of model parallelism; did you mean partitions?"),
        ({"active_microbatches": 0}, "active_microbatches=0 (smp.init): expected a whole number, 1 or more"),
    ],
)  # fmt: skip
def test_rules(read: Read, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(given)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"SM_HP_MP_PARAMETERS": "{"}, "SM_HP_MP_PARAMETERS='{': expected a JSON object such as"),
        ({"SM_HP_MP_PARAMETERS": "[1]"}, "SM_HP_MP_PARAMETERS='[1]': expected a JSON object"),
        ({"SM_HPS": '{"mp_parameters": "{"}'}, "mp_parameters in SM_HPS='{': expected a JSON object"),
        ({"SM_HPS": "{"}, "SM_HPS='{': expected a JSON object"),
        ({"SM_HP_MP_PARAMETERS": '{"microbatches": 0}'}, "microbatches=0 (SM_HP_MP_PARAMETERS): expected a whole"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(read: Read, environ: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(**environ)
    assert str(caught.value).startswith(words)


def test_whatever_is_not_supported_is_refused_by_its_name(config: Any, table: Any, read: Read) -> None:
    defaults = {name: parameter.default for name, parameter in table.items()}
    for name, _ in config.UNSUPPORTED:
        value = True if defaults[name] is False else 2
        with pytest.raises(NotImplementedError) as caught:
            read({"ddp": True, name: value})
        assert str(caught.value).startswith(
            f"{name}={value} (smp.init): musterpoint's smdistributed.modelparallel doesn't support it yet; "
        )
        assert read({name: defaults[name]})


def test_parameters_without_effect_are_named_in_a_warning(table: Any, read: Read) -> None:
    given = {name: not parameter.default for name, parameter in table.items() if name in WARNED}
    assert list(given) == list(WARNED)
    found = list(read(given).without_effect())
    assert [line.partition("=")[0] for line in found] == list(WARNED)
    for name, line in zip(WARNED, found, strict=True):
        assert line.startswith(f"{name}={given[name]} (smp.init): without effect; ")
    assert list(read({name: not value for name, value in given.items()}).without_effect()) == []


WARNED = ("contiguous", "deterministic_server", "sdp_hierarchical_allgather", "static_mode", "fast_mode")
