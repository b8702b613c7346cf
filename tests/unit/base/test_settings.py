"""Every option once: the table, the fields and the variables agree."""

from __future__ import annotations

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import BY_FIELD, LOCAL, OPTIONS, PROGRAM_ARGS, Settings, from_environ, without_own


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
    ("MUSTER_LAUNCHER", "horovod", "expected one of auto, script"),
    ("MUSTER_SLOTS", "0", "a whole number, 1 to 65536"),
    ("MUSTER_SLOTS", "four", "a whole number, 1 to 65536"),
    ("MUSTER_ROLLCALL_TIMEOUT", "-1", "a number of seconds"),
    ("MUSTER_ROLLCALL_TIMEOUT", "nan", "a number of seconds"),
    ("MUSTER_ROLLCALL_PORT", "70000", "a port number"),
    ("MUSTER_STOP_EXIT_CODE", "256", "an exit code"),
    ("MUSTER_LOG_RANKS", "0,a", "global ranks"),
    *(
        ("MUSTER_TF_ROLES", roles, "how many of each role")
        for roles in ("worker", "worker=0,ps=1", "worker=1,ps=0", "chief=1", "ps=1,ps=2", "evaluator=2", "worker=x")
    ),
    ("MUSTER_STOP_SIGNAL", "HOP", "the name of a signal"),
]


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
