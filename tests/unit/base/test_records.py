"""Named tuples of our own, beside typing's: whatever is asked of both has the same answer."""

from __future__ import annotations

import copy
import pickle
import sys
import typing
from typing import Any, Callable, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base import records


def _none(base: Any) -> Any:
    class Nothing(base):  # type: ignore[misc]
        """Has no field."""

    return Nothing


def _some(base: Any) -> Any:
    class Some(base):  # type: ignore[misc]
        """Has all that one may have."""

        first: int
        second: str
        third: int | None = None
        fourth: tuple[int, ...] = (1, 2)

        @property
        def both(self) -> str:
            return f"{self[0]}{self[1]}"

        @classmethod
        def made(cls) -> Any:
            return cls(1, second="x")

        def __str__(self) -> str:
            return f"<{self.both}>"

    return Some


def _all_defaults(base: Any) -> Any:
    class AllDefaults(base):  # type: ignore[misc]
        one: int = 1
        two: str = "2"

    return AllDefaults


BODIES = (_none, _some, _all_defaults)


def answer(ask: Callable[[], Any]) -> Any:
    """What came of it: a value in a form that can be compared, or the kind of error."""
    try:
        return ask()
    except Exception as error:
        return type(error)


VALUES = st.one_of(st.integers(), st.text(max_size=3), st.none())
NAMES = st.sampled_from(["first", "second", "third", "fourth", "one", "two", "five", "self", "cls"])


@given(
    body=st.sampled_from(BODIES),
    values=st.lists(VALUES, max_size=6),
    named=st.dictionaries(NAMES, VALUES, max_size=4),
    changes=st.dictionaries(NAMES, VALUES, max_size=2),
)
def test_they_answer_as_typings_do(
    body: Callable[[Any], Any], values: list[Any], named: dict[str, Any], changes: dict[str, Any]
) -> None:
    ours, typings = body(records.NamedTuple), body(typing.NamedTuple)

    def seen(cls: Any) -> list[Any]:
        made = answer(lambda: cls(*values, **named))
        if isinstance(made, type):
            return [made]
        return [
            tuple(made), repr(made), str(made), hash(made), made._asdict(), made == tuple(values), len(made),
            [getattr(made, name) for name in cls._fields], tuple(copy.deepcopy(made)),
            answer(lambda: tuple(made._replace(**changes))), answer(lambda: tuple(cls._make(values))),
            answer(lambda: setattr(made, "first", 1)), made.__getnewargs__(), made[:1],
        ]  # fmt: skip

    assert seen(ours) == seen(typings)


@pytest.mark.parametrize("body", BODIES)
def test_their_classes_are_alike(body: Callable[[Any], Any]) -> None:
    ours, typings = body(records.NamedTuple), body(typing.NamedTuple)
    for name in ("_fields", "_field_defaults", "__match_args__", "__name__", "__qualname__", "__module__", "__slots__"):
        assert getattr(ours, name) == getattr(typings, name), name
    assert ours.__doc__ in (typings.__doc__, None)  # typing makes one up where there is none
    assert get_type_hints(ours) == get_type_hints(typings)
    assert issubclass(ours, tuple) and type(ours) is type(typings) is type


class Pair(records.NamedTuple):
    left: int
    right: int = 2


def test_they_are_pickled_matched_and_unlike_others() -> None:
    pair = Pair(1)
    assert type(pickle.loads(pickle.dumps(pair))) is Pair and pickle.loads(pickle.dumps(pair)) == pair
    match pair:
        case Pair(left, right=right):
            assert (left, right) == (1, 2)
        case _:
            raise AssertionError
    with pytest.raises(AttributeError):
        pair.other = 1  # type: ignore[attr-defined]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="typing's own words")
def test_errors_name_the_class_and_the_field() -> None:
    make: Any = Pair
    with pytest.raises(TypeError, match=r"^Pair\(\) lacks left$"):
        make(right=1)
    with pytest.raises(TypeError, match=r"^Pair\(\) has no field 'middle'$"):
        make(1, middle=1)
    with pytest.raises(TypeError, match=r"^Pair\(\) got several values for 'left'$"):
        make(1, left=1)
    with pytest.raises(TypeError, match=r"^Pair\(\) takes 2 values, and was given 3$"):
        make(1, 2, 3)
    with pytest.raises(TypeError, match=r"^Wrong: a field without a default follows one that has one$"):

        class Wrong(records.NamedTuple):
            first: int = 1
            second: int  # type: ignore[misc]
