"""The platforms that start ``muster launch`` on their hosts and describe the job in variables: a row for each."""

from typing import Callable, Mapping, NamedTuple

from musterpoint.job.model import Job
from musterpoint.settings import Platform, Settings


class Reader(NamedTuple):
    """A platform's reader.

    ``found``: whether a process's variables are that platform's.
    ``load``: imports the module that reads them and returns its function from variables and settings to the job, which
    has no program yet. It raises a UsageError that names the variable, its value and what was expected.
    """

    platform: Platform
    found: Callable[[Mapping[str, str]], bool]
    load: Callable[[], Callable[[Mapping[str, str], Settings], Job]]


READERS: tuple[Reader, ...] = ()
"""All but SageMaker's, in the order in which their variables are looked for; only the one found is imported."""
