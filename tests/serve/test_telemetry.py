"""What a job prints, on its way to log streams; tests/contract/control_plane has what comes of it."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from moto.logs.models import logs_backends

from musterpoint.serve import moto_services
from musterpoint.serve.settings import ACCOUNT

from .jobs import IMAGE, Account


def test_an_expression_without_a_group_is_refused(account: Account) -> None:
    algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File"}
    algorithm["MetricDefinitions"] = [{"Name": "loss", "Regex": "loss="}]  # type: ignore[assignment]
    with pytest.raises(ClientError, match="MetricDefinition loss: 'loss=' has no group"):
        account.create("refused", "pass", AlgorithmSpecification=algorithm)


def test_a_search_without_an_end_costs_a_second_and_is_told(account: Account) -> None:
    lines = "a" * 60 + "!", "loss=0.5", *["a" * 60 + "!"] * 5
    found = [{"Name": "endless", "Regex": "((a|a)+)$"}, {"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    shell = {"TrainingImage": "an-image", "TrainingInputMode": "File", "MetricDefinitions": found,
             "ContainerEntrypoint": ["printf", "%s\\n", *lines]}  # fmt: skip
    done = account.run("endless", "", AlgorithmSpecification=shell)
    assert done["TrainingJobStatus"] == "Completed", account.log("endless")
    assert [(last["MetricName"], last["Value"]) for last in done["FinalMetricDataList"]] == [("loss", 0.5)]
    told = [line for line in account.log("endless").splitlines() if "takes too long" in line]
    assert [line.endswith("given up") for line in told] == [False, False, True]


def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moto_services, "MOST_LINES", 10)
    told, heard = moto_services.Telemetry("eu-west-3", print), list[tuple[str, int]]()
    told.listen(lambda key, lines: heard.append((key, len(lines))))
    for number in range(4):
        told.lines("job", 1, [moto_services.Line(f"algo-{number % 2}", at, f"{number}.{at}") for at in range(4)])
    groups = logs_backends[ACCOUNT]["eu-west-3"].groups
    streams = groups["/aws/sagemaker/TrainingJobs"].streams
    assert {name: len(stream.events) for name, stream in streams.items()} == {"job/algo-0-1": 4, "job/algo-1-1": 4}
    assert heard == [("job", 4)] * 4
    recent, _ = told.listen(print, "job")
    assert [line.text for line in recent][::15] == ["0.0", "3.3"]
    monkeypatch.setattr(moto_services, "MOST_BYTES", 10)
    told.lines("job", 1, [moto_services.Line("algo-0", 1, "0123456789")])
    assert {name: len(stream.events) for name, stream in streams.items()} == {"job/algo-0-1": 1, "job/algo-1-1": 0}
