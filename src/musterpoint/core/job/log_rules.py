"""Log rules: what must be printed, how often, and what must not (``--log-rules``).

The shape is that of ``logMonitoringConfiguration`` of SageMaker HyperPod's training operator, whose JSON is taken as it
stands. Sources: AWS, "Using the training operator to run jobs"; the meaning of each key is that of HyperPod's elastic
agent (its ``LogEvaluator``), but for what docs/hangs.md lists.
"""

import json
import os
import re
from typing import Any, Literal, Mapping, Union, cast

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.toml import tomllib
from musterpoint.base.untrusted import open_regular

Operator = Literal["", "gt", "gteq", "lt", "lteq", "eq"]
OPERATORS: tuple[Operator, ...] = ("gt", "gteq", "lt", "lteq", "eq")
Ranks = Union[Literal["any", "all"], tuple[int, ...]]

MOST_BYTES = 1 << 20
MOST_RULES = 64
LONGEST_NAME = 80
LONGEST_PATTERN = 4096
CONFIGURATION = "logMonitoringConfiguration"
_ABOVE = ("spec", "runPolicy", CONFIGURATION)
"""Where HyperPod's job has its rules."""
_INLINE = ("[", "{")
_WORDS = {"gt": "above", "gteq": "at or above", "lt": "below", "lteq": "at or below", "eq": "equal to"}


class LogRule(NamedTuple):
    """One rule. None or empty: not asked for.

    name: what reports call it.
    pattern: a regular expression that matches from a line's beginning (``re.match``).
    start: seconds from the start of the ranks within which a line must match.
    recurring: seconds after a match within which the next one must come.
    threshold: the bound of the number in the pattern's first group.
    operator: how a bad number compares with it.
    points: so many bad numbers of a rank in a row are a fault.
    fault: whether a match is a fault at once.
    stop: from a line that matches this on, the rule is off.
    ranks: whose lines count: ``any``: a match of any rank is one of the job; ``all``: each rank must match by itself;
        or the global ranks that must.
    """

    name: str
    pattern: str
    start: float | None = None
    recurring: float | None = None
    threshold: float | None = None
    operator: Operator = ""
    points: int = 1
    fault: bool = False
    stop: str = ""
    ranks: Ranks = "any"

    @property
    def bound(self) -> str:
        """Which numbers are bad, for people: ``above 10``."""
        return f"{_WORDS[self.operator]} {self.threshold:g}" if self.operator else ""

    @property
    def whose(self) -> str:
        if self.ranks == "any":
            return "any rank"
        if self.ranks == "all":
            return "each rank"
        return f"rank{'s' if len(self.ranks) > 1 else ''} {', '.join(map(str, self.ranks))}"

    def described(self) -> str:
        """What it does, for ``muster plan``."""
        matches = f"a line of {self.whose} that matches {self.pattern!r}"
        does = []
        if self.start is not None:
            does.append(f"must come within {self.start:g} s of the start")
        if self.recurring is not None:
            does.append(f"must come again every {self.recurring:g} s")
        if self.operator:
            times = f" in {self.points} such lines of a rank in a row" if self.points > 1 else ""
            does.append(f"is a fault when its number is {self.bound}{times}, or nan")
        if self.fault:
            does.append("is a fault at once")
        text = f"log rule {self.name}: {matches} {', '.join(does) or 'is only found: the rule ends nothing'}"
        text += f"; off after a line that matches {self.stop!r}" if self.stop else ""
        if not self.pattern.startswith((".*", "^", "(?")):
            text += "; it matches from a line's beginning only: write .* before it to find it anywhere"
        return text


def read_log_rules(given: str, code: str = "") -> tuple[LogRule, ...]:
    """The rules of ``--log-rules``: a file (JSON, or TOML on Python 3.11 and later), or their JSON itself.

    A relative path is looked up here, then in ``code``, the directory of the user's code. Empty: no rules.

    Raises:
        UsageError: it can't be read, or a rule is wrong.
    """
    if not given:
        return ()
    where, found = _decoded(given, code)
    for key in _ABOVE:
        if isinstance(found, dict) and key in found:
            found = found[key]
    if not isinstance(found, list) or not found or len(found) > MOST_RULES:
        raise UsageError(
            f"{where}: expected a list of 1 to {MOST_RULES} rules, or an object with it as {CONFIGURATION}"
        )
    rules = tuple(_rule(each, number, where) for number, each in enumerate(found, 1))
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{where}: two rules are called {name!r}: give each a name of its own")
    return rules


def check_channel(rules: tuple[LogRule, ...], hosts: int, rollcall: str) -> None:
    """Checks that hosts can tell each other which lines came, where a line of any rank of the job is asked for.

    Raises:
        UsageError: there are several hosts without the roll call's channel.
    """
    for rule in rules:
        if hosts > 1 and rollcall != "full" and rule.ranks == "any" and (rule.start or rule.recurring):
            raise UsageError(
                f"--rollcall {rollcall}: log rule {rule.name!r} asks for a line of any rank of the job, and only "
                '--rollcall full tells hosts of each other\'s lines: use that, or say whose line it is ("ranks": "all")'
            )


def as_json(given: str, folder: str) -> str:
    """A file of this machine, relative to ``folder``, as the JSON in it, for hosts that don't have it; anything else as
    it is.

    Raises:
        UsageError: as :func:`read_log_rules`.
    """
    path = os.path.join(folder, given)
    if not given or not os.path.exists(path):
        return given
    read_log_rules(path)
    return json.dumps(_decoded(path, "")[1])


def _decoded(given: str, code: str) -> tuple[str, Any]:
    """What errors call it, and what it has."""
    if given.lstrip().startswith(_INLINE):
        return "--log-rules", _parsed_json(given, "--log-rules")
    return _file(given, code)


def to_json(rules: tuple[LogRule, ...]) -> str:
    """For the program that searches the output (``programs/log_matcher``)."""
    return json.dumps([rule._asdict() for rule in rules])


def _file(given: str, code: str) -> tuple[str, Any]:
    path = given
    if not os.path.isabs(given) and not os.path.exists(given) and code:
        path = os.path.join(code, given)
    where = f"--log-rules {given}"
    try:
        with open(open_regular(path, os.O_RDONLY), "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(
            f"{where}: it can't be read: {why}; expected a file with rules, here or beside the code"
        ) from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{where}: it has more than {MOST_BYTES >> 20} MiB, expected a list of rules")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: it is not UTF-8 (at byte {error.start})") from None
    if not path.endswith(".toml"):
        return where, _parsed_json(text, where)
    if tomllib is None:
        raise UsageError(f"{where}: TOML needs Python 3.11 or later, or tomli: write the rules as JSON")
    try:
        return where, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: it is no TOML: {error}") from None


def _parsed_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "" if text.lstrip().startswith(_INLINE) else " (YAML isn't read: write the same list as JSON)"
        raise UsageError(f"{where}: it is no JSON: {error}{hint}") from None


class _Fields:
    """The keys of one rule, each read once; every error names the file, the rule and the key."""

    def __init__(self, given: Mapping[str, Any], where: str, name: str) -> None:
        self._given, self._where = given, f"{where}: rule {name}"

    def wrong(self, key: str, expected: str) -> UsageError:
        shown = repr(self._given.get(key))
        return UsageError(f"{self._where}: {key} is {shown[:80]}, expected {expected}")

    def text(self, key: str, longest: int, needed: bool = False) -> str:
        value = self._given.get(key, None if needed else "")
        if not isinstance(value, str) or len(value) > longest or (needed and not value):
            raise self.wrong(key, f"a text of at most {longest} characters")
        return value

    def pattern(self, key: str, needed: bool = False) -> str:
        value = self.text(key, LONGEST_PATTERN, needed)
        try:
            re.compile(value)
        except (re.error, RecursionError, OverflowError) as error:
            raise self.wrong(key, f"a regular expression of Python ({error})") from None
        return value

    def number(self, key: str, expected: str, above: float | None = None) -> float | None:
        """A number, also as a text, which HyperPod takes, too."""
        value = self._given.get(key)
        if value is None:
            return None
        try:
            found = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None
        except (ValueError, OverflowError):
            found = None
        if found is None or not abs(found) < float("inf") or (above is not None and found <= above):
            raise self.wrong(key, expected)
        return found

    def seconds(self, key: str) -> float | None:
        return self.number(key, "a number of seconds above 0", 0.0)

    def flag(self, key: str) -> bool:
        value = self._given.get(key, False)
        if value in ("true", "false"):
            return bool(value == "true")
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def ranks(self, key: str) -> Ranks:
        value = self._given.get(key, "any")
        if value in ("any", "all"):
            return cast(Ranks, value)
        found = [value] if type(value) is int else value
        if not isinstance(found, list) or not found or any(type(one) is not int or one < 0 for one in found):
            raise self.wrong(key, "any, all, a global rank, or a list of them")
        return tuple(sorted(set(found)))


_KEYS = (
    "name",
    "logPattern",
    "expectedStartCutOffInSeconds",
    "expectedRecurringFrequencyInSeconds",
    "metricThreshold",
    "operator",
    "metricEvaluationDataPoints",
    "faultOnMatch",
    "stopPattern",
    "ranks",
)


def _rule(given: Any, number: int, where: str) -> LogRule:
    if not isinstance(given, dict):
        raise UsageError(
            f"{where}: rule {number} is {type(given).__name__}, expected an object with name and logPattern"
        )
    name = given.get("name")
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise _Fields(given, where, str(number)).wrong("name", f"a name of at most {LONGEST_NAME} characters")
    fields = _Fields(given, where, repr(name))
    for key in given:
        if key not in _KEYS:
            raise UsageError(f"{where}: rule {name!r} has an unknown key {key!r:.80}, expected {', '.join(_KEYS)}")
    pattern = fields.pattern("logPattern", needed=True)
    threshold = fields.number("metricThreshold", "a number")
    operator = fields.text("operator", 80)
    if operator not in ("", *OPERATORS) or (operator == "") != (threshold is None):
        raise fields.wrong("operator", f"one of {', '.join(OPERATORS)}, together with metricThreshold")
    if operator and not re.compile(pattern).groups:
        raise fields.wrong("logPattern", "a group, such as (\\S+), around the number that metricThreshold is about")
    points = fields.number("metricEvaluationDataPoints", "a whole number, 1 or more", 0.0)
    if points is not None and points != int(points):
        raise fields.wrong("metricEvaluationDataPoints", "a whole number, 1 or more")
    return LogRule(
        name=name,
        pattern=pattern,
        start=fields.seconds("expectedStartCutOffInSeconds"),
        recurring=fields.seconds("expectedRecurringFrequencyInSeconds"),
        threshold=threshold,
        operator=operator,
        points=int(points or 1),
        fault=fields.flag("faultOnMatch"),
        stop=fields.pattern("stopPattern"),
        ranks=fields.ranks("ranks"),
    )
