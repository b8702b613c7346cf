"""Several simulated hosts of one job: failures, stops, losses and cuts at any moment, played to the end.

What must hold: every host ends, after its ranks; hosts that could hear each other end with one code and reason, which
is the cause and not its echo; a stop is no failure; a job whose ranks all ended well ends with 0. Jobs that may be
started again make the same attempts on all hosts, as many as they may, none after a stop, and none before the one
before it has ended everywhere. Nothing ever waits, by what the channel knows, for a host that has gone. A history that
breaks this is shrunk; it belongs into the table of ``tests/unit/core/supervise/test_several_hosts.py`` then.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import one_of

from fuzzers.findings import Findings

ROOT = Path(__file__).resolve().parents[2]


def fuzz(number: int, inputs: int) -> Findings:
    sys.path.insert(0, str(ROOT))
    hosts: Any = importlib.import_module("tests.unit.core.supervise.simulated_hosts")
    rules: Any = importlib.import_module("tests.unit.core.supervise.rules_of_endings")
    histories: Any = importlib.import_module("tests.unit.core.supervise.histories")
    tried = 0

    @seed(number)
    @settings(max_examples=inputs, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(one_of(histories.histories(most_faults=6), histories.restarting(), histories.silent()))
    def any_history(history: Any) -> None:
        nonlocal tried
        tried += 1
        job = hosts.play(history)
        found = rules.wrong(job)
        assert not found, "\n".join([*found, hosts.told(job)])

    try:
        any_history()
    except AssertionError as error:
        return Findings(tried, (str(error),))
    return Findings(tried, ())
