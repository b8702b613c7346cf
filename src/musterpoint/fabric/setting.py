"""One environment variable that a device, a launcher or a platform calls for."""

from typing import NamedTuple


class EnvSetting(NamedTuple):
    """Name, value, and why we set it. Variables the user set never become one."""

    name: str
    value: str
    reason: str
