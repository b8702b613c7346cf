"""Options that are gone end with 64 and name what to use; where they ask for nothing, the job runs."""

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import BY_FIELD, NOTHING_ASKED, REMOVED, from_environ
from musterpoint.cli import launch
from musterpoint.core.unheeded import unknown_variables
from musterpoint.local.words import to_words

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
    assert [variable in text and "gone" in text for text in unknown_variables({variable: value})] == [True]


def test_none_is_an_option() -> None:
    assert not REMOVED.keys() & BY_FIELD.keys()
