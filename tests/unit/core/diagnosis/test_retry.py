"""After which failures a job may be tried again."""

from __future__ import annotations

import pytest

from musterpoint.base.failure import Failure
from musterpoint.core.diagnosis.retry import why_not_again

from ..failures import ECC, ERROR, KILLED, LOST, OOM, PEER, STALLED, ours


def crashed(signo: int) -> Failure:
    return ERROR._replace(code=128 + signo, signal=signo)


@pytest.mark.parametrize(
    ("failure", "infra", "user"),
    [
        (KILLED, True, True),
        *((crashed(signo), True, True) for signo in (6, 7, 11, 15)),
        *((crashed(signo), False, True) for signo in (2, 4, 8)),
        (PEER, True, True),
        (ECC, True, True),
        (LOST, True, True),
        (STALLED, True, True),
        (ERROR, False, True),
        (ERROR._replace(code=64), False, True),
        (OOM, False, True),
        (OOM._replace(cause="muster", code=74), False, True),
        *((ours(code), False, False) for code in (64, 70, 72)),
        *((ours(code)._replace(kind="user"), False, False) for code in (64, 71, 72)),
        *((ours(code), True, True) for code in (69, 71, 78)),  # what was missing may be there next time
        (ours(72)._replace(kind="peer"), True, True),  # mpirun ended by itself: a rank or a host is gone
        (ours(72)._replace(signal=9), True, True),
        (ours(72)._replace(signal=4), False, False),
    ],
)
def test_what_is_retriable(failure: Failure, infra: bool, user: bool) -> None:
    assert (not why_not_again(failure, "infra"), not why_not_again(failure, "user")) == (infra, user)
