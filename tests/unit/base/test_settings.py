"""Every option once: the table, the fields and the variables agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base import plugins
from musterpoint.base.errors import UsageError
from musterpoint.base.settings import (
    BY_FIELD,
    LOCAL,
    NOTHING_ASKED,
    OPTIONS,
    PROGRAM_ARGS,
    REMOVED,
    Settings,
    from_environ,
    without_own,
)
from musterpoint.cli import launch
from musterpoint.core.ignored_options import unknown_variables
from musterpoint.core.job.platforms import PLATFORMS
from musterpoint.local.job_file import to_words


def test_options_and_settings_have_the_same_fields() -> None:
    assert [option.field for option in OPTIONS] == list(dict.fromkeys(option.field for option in OPTIONS))
    assert set(BY_FIELD) == set(Settings._fields)


def test_defaults_are_values_their_options_accept() -> None:
    defaults = Settings()
    for option in OPTIONS:
        value = getattr(defaults, option.field)
        if option.choices and value:
            assert value in option.choices, option.field
        elif value not in (None, ""):
            assert option.read(str(value), option.flag) == value, option.field


READ = [
    ("MUSTER_LAUNCHER", "ranks", "launcher", "ranks"),
    ("MUSTER_SLOTS", "4", "slots", 4),
    ("MUSTER_ROLLCALL_TIMEOUT", "1.5", "rollcall_timeout", 1.5),
    ("MUSTER_MASTER_PORT", "29500", "master_port", 29500),
    ("MUSTER_STOP_SIGNAL", "sigusr2", "stop_signal", "USR2"),
    ("MUSTER_STOP_EXIT_CODE", "0", "stop_exit_code", 0),
    ("MUSTER_LOG_RANKS", "0,8", "log_ranks", "0,8"),
    ("MUSTER_LOG_RANKS", "local:0,1", "log_ranks", "local:0,1"),
    ("MUSTER_DEEPSPEED_LOCAL_RANK", "variable", "local_rank", "variable"),
    ("MUSTER_ROLLCALL_LEADER", "node-a:7776", "rollcall_leader", "node-a:7776"),
    ("MUSTER_NODE_RANK", "0", "node_rank", 0),
    ("MUSTER_LOG_DIR", "/tmp/x", "log_dir", "/tmp/x"),
    ("MUSTER_SLOTS", "", "slots", None),
    ("MUSTER_TF_PORT", "0", "tf_port", 0),
    ("MUSTER_TF_ROLES", "worker=2, ps=1", "tf_roles", "worker=2,ps=1"),
    ("MUSTER_TF_ROLES", "ps=3,evaluator=1", "tf_roles", "ps=3,evaluator=1"),
]


@pytest.mark.parametrize(("variable", "text", "field", "value"), READ)
def test_a_variable_is_read(variable: str, text: str, field: str, value: object) -> None:
    assert getattr(from_environ({variable: text}), field) == value


def test_the_command_line_wins() -> None:
    assert from_environ({"MUSTER_SLOTS": "rubbish", "MUSTER_LOG_DIR": "a"}, {"slots": 2}) == Settings(
        slots=2, log_dir="a"
    )


WRONG = [
    ("MUSTER_SLOTS", "0", "a whole number, 1 to 65536"),
    ("MUSTER_SLOTS", "four", "a whole number, 1 to 65536"),
    ("MUSTER_ROLLCALL_TIMEOUT", "-1", "a number of seconds"),
    ("MUSTER_ROLLCALL_TIMEOUT", "nan", "a number of seconds"),
    ("MUSTER_ROLLCALL_TIMEOUT", "1h3", "a number of seconds, 0 to 1e9, or a time such as 90s, 5m or 1h30m"),
    ("MUSTER_ROLLCALL_PORT", "70000", "a port number"),
    ("MUSTER_STOP_EXIT_CODE", "256", "an exit code"),
    ("MUSTER_LOG_RANKS", "0,a", "global ranks"),
    *(
        ("MUSTER_TF_ROLES", roles, "how many of each role")
        for roles in ("worker", "worker=0,ps=1", "worker=1,ps=0", "chief=1", "ps=1,ps=2", "evaluator=2", "worker=x")
    ),
    ("MUSTER_STOP_SIGNAL", "HOP", "the name of a signal"),
]


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("1e2", 100), ("5m", 300), ("1h30m", 5400), ("1.5s", 1.5)])
def test_a_time_has_seconds_or_letters(text: str, value: float) -> None:
    assert from_environ({"MUSTER_STALL_TIMEOUT": text}).stall_timeout == value


@pytest.mark.parametrize(("variable", "text", "words"), WRONG)
def test_an_error_names_the_variable_the_value_and_what_was_expected(variable: str, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        from_environ({variable: text})
    assert f"{variable}={text!r}" in str(caught.value)


def test_options_of_this_process_stay_with_it() -> None:
    own = {option.variable: "x" for option in OPTIONS if not option.inherited} | {"MUSTER_DEEPSPEED_LOCAL_RANK": "x"}
    kept = {"PATH": "/bin", "MUSTER_TEST_TOKEN": "t", "MUSTER_OUTER": "o", "MUSTER_PYTHON": "/usr/bin/python3"}
    assert without_own({**own, PROGRAM_ARGS: "[]", LOCAL: "1", **kept}) == kept
    assert "MUSTER_SECRET" in own


FIELDS = [name for name in REMOVED if not name.startswith(";")]
VARIABLES = [f"MUSTER_{field.upper()}" for field in FIELDS]


@pytest.mark.parametrize("field", FIELDS)
def test_asking_for_one_is_refused_with_what_to_use(field: str) -> None:
    flag = f"--{field.replace('_', '-')}"
    with pytest.raises(UsageError) as error:
        from_environ({f"MUSTER_{field.upper()}": "x"})
    assert REMOVED[field] in str(error.value)
    with pytest.raises(UsageError) as error:
        launch.parsers()[0].parse_args([flag, "x"])
    assert REMOVED[field] in str(error.value)
    with pytest.raises(UsageError) as error:
        to_words({field: "x"}, {}, "job.toml")
    assert REMOVED[field] in str(error.value)


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("value", NOTHING_ASKED)
def test_asking_for_nothing_is_a_warning(variable: str, value: str) -> None:
    from_environ({variable: value})
    launch.parsers()[0].parse_args([f"--{variable.removeprefix('MUSTER_').lower().replace('_', '-')}", value])
    assert [variable in text and "gone" in text for text in unknown_variables({variable: value})] == [True]


def test_none_is_an_option() -> None:
    assert not REMOVED.keys() & BY_FIELD.keys()


GROUP = "musterpoint.tests"


def package(folder: Path, name: str, points: str, code: str = "") -> None:
    """An installed distribution ``name`` in ``folder``, with one module of ``code`` and entry points."""
    (folder / f"{name.replace('-', '_')}.py").write_text(code)
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages on Python's path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_an_object_is_found_by_its_name(site: Path) -> None:
    package(site, "first-plugin", "one = first_plugin:ONE\ntwo = first_plugin:TWO", "ONE, TWO = 1, 'two'\n")
    assert plugins.names(GROUP) == ("one", "two")
    assert (plugins.load(GROUP, "one", int), plugins.load(GROUP, "two", str)) == (1, "two")


def test_what_is_wrong_is_said_with_the_package(site: Path) -> None:
    package(site, "second-plugin", "a = second_plugin:NAMED\nb = second_plugin:NONE\nc = third_plugin:ANY",
            "from types import SimpleNamespace\nNAMED = SimpleNamespace(name='x')\n")  # fmt: skip
    for name, kind, words in (
        ("other", int, r"other: no installed package has an entry point of that name in musterpoint.tests"),
        ("a", object, r"a: second_plugin:NAMED of the package second-plugin is SimpleNamespace, expected a builtins"),
        ("a", int, "expected a builtins.int whose name is a"),
        ("b", int, r"b: the package second-plugin can't be imported for it \(second_plugin:NONE\): AttributeError"),
        ("c", int, r"c: the package second-plugin can't be imported .* ModuleNotFoundError: No module named 'third_pl"),
    ):
        with pytest.raises(UsageError, match=words):
            plugins.load(GROUP, name, kind)


def test_two_packages_of_one_name_are_refused(site: Path) -> None:
    for name in ("fourth-plugin", "fifth-plugin"):
        package(site, name, f"same = {name.replace('-', '_')}:ONE", "ONE = 1\n")
    with pytest.raises(UsageError, match=r"2 installed packages have one: .*fifth-plugin.*; uninstall all but one"):
        plugins.load(GROUP, "same", int)


def test_an_option_takes_their_names(site: Path) -> None:
    package(site, "sixth-plugin", "foreign = sixth_plugin:ONE")
    option = plugins.Named("platform", GROUP, tuple(PLATFORMS))
    assert option.read("foreign", "--platform") == "foreign"
    with pytest.raises(UsageError, match=r"expected one of auto, sagemaker.*plain, foreign .did you mean foreign"):
        option.read("foreing", "--platform")
