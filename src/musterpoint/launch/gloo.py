"""The door between ``ranks`` and Horovod: what one host's ranks get for Horovod's Gloo controller."""

from typing import NamedTuple

from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.plan import ProcessPlan


class Gloo(NamedTuple):
    """What Horovod without MPI adds on one host: ``identities`` are who its ranks are to Horovod, slot by slot."""

    environment: tuple[EnvSetting, ...] = ()
    identities: tuple[tuple[EnvSetting, ...], ...] = ()
    services: tuple[ProcessPlan, ...] = ()
    notes: tuple[str, ...] = ()
