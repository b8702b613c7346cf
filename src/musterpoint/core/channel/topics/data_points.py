"""Points before an attempt at which all hosts agree on the job's data."""

from typing import Annotated, Literal

from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.bounds import Range, Text
from musterpoint.core.channel.peers import Report
from musterpoint.core.channel.topic import Topic
from musterpoint.core.channel.topics.consultations import Consultations, LeadersConsultations, WorkersConsultations

About = Literal["new", "there", "agreed", "over"]
Attempt = Annotated[int, Range(0, 2**31)]
Number = Annotated[int, Range(0, 10**12 - 1)]
"""The number of a manifest; 0: none."""


class DataHere(NamedTuple):
    """A host's word at the point ``about`` of ``attempt``."""

    attempt: Attempt
    about: About
    has_failed: bool
    """It can't have its data."""
    is_new: bool
    """It hasn't the files of the attempt before."""
    number: Number | None
    """The manifest that it has brought; None: it brings none."""

    @property
    def point(self) -> str:
        return f"{self.attempt}-{self.about}"


class DataThere(NamedTuple):
    """The leader's word at that point, about all hosts."""

    attempt: Attempt
    about: About
    has_failed: bool
    """A host can't have its data."""
    is_new: bool
    """A host hasn't the files of the attempt before."""
    newest: Number | None
    oldest: Number | None
    """The manifests that hosts have brought."""
    host: Annotated[str, Text(253, shown=True)]
    """The host that has brought the newest one."""
    owner: Annotated[int, Range(0, 10**7 - 1)]
    """The number of this start of the job at the place of its checkpoints, as the leader has it."""

    @property
    def point(self) -> str:
        return f"{self.attempt}-{self.about}"


def decide(reports: dict[str, Report], owner: int) -> DataThere:
    """The leader's word, of the reports of all hosts."""
    said: dict[str, DataHere] = {host: report.said for host, report in reports.items()}
    numbers = [each.number for each in said.values() if each.number is not None]
    newest = max(numbers, default=None)
    one = next(iter(said.values()))
    return DataThere(
        one.attempt,
        one.about,
        any(each.has_failed for each in said.values()),
        any(each.is_new for each in said.values()),
        newest,
        min(numbers, default=None),
        "" if newest is None else next(host for host, each in said.items() if each.number == newest),
        owner,
    )


TOPIC: Topic[Consultations] = Topic(
    "data_points", (DataHere,), (DataThere,), LeadersConsultations, WorkersConsultations
)
