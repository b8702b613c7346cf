"""The job's hosts and instance groups, and which of them take part in the distribution."""

import re
from typing import Any, Callable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import LONGEST_NAME, host, host_list, mapping, shown, text, wrong
from musterpoint.core.job.host_order import natural
from musterpoint.core.job.model import Distribution, InstanceGroup, Job, Note

_ACCELERATED = r"(?:ml\.)?(?:p|g|gr|trn|inf|dl)[0-9]|local_gpu$"


class Cluster(NamedTuple):
    """Every host of the job, in natural order, and how the platform grouped them."""

    hosts: tuple[str, ...]
    current_host: str
    groups: tuple[InstanceGroup, ...] = ()
    current_group: str = ""
    instance_type: str = ""
    network_interface: str = ""


class Choice(NamedTuple):
    """The instance groups (by name; empty: all hosts) and hosts that take part in the distribution."""

    groups: tuple[str, ...]
    hosts: tuple[str, ...]
    notes: tuple[Note, ...] = ()


def from_config(config: Mapping[str, Any], where: Callable[[str], str]) -> Cluster:
    """The cluster that a decoded ``resourceconfig.json`` describes; only ``hosts`` and ``current_host`` must be there.

    ``where`` gives the place of a key, for messages. Groups of the same name are one group.

    Raises:
        UsageError: a key is missing or wrong.
    """
    hosts = natural(host_list(config.get("hosts"), where("hosts")))
    if not hosts:
        raise wrong(where("hosts"), [], "at least one host name")
    current = host(config.get("current_host"), where("current_host"))
    if current not in hosts:
        raise UsageError(f"{where('current_host')} is {shown(current)}, expected one of the hosts: {_names(hosts)}")
    groups = _groups(config.get("instance_groups"), where("instance_groups"), hosts)
    own_group = next((group for group in groups if current in group.hosts), InstanceGroup("", "", ()))
    key = "current_group_name" if config.get("current_group_name") is not None else "current_instance_group"
    instance_type = text(config.get("current_instance_type"), where("current_instance_type"))
    return Cluster(
        hosts=hosts,
        current_host=current,
        groups=groups,
        current_group=text(config.get(key), where(key)) or own_group.name,
        instance_type=instance_type or own_group.instance_type,
        network_interface=text(config.get("network_interface_name"), where("network_interface_name")),
    )


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _groups(value: Any, where: str, hosts: tuple[str, ...]) -> tuple[InstanceGroup, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong(where, value, "a list of instance groups")
    known = set(hosts)
    group_of: dict[str, str] = {}
    types: dict[str, str] = {}
    for index, entry in enumerate(value):
        here = f"{where}[{index}]"
        fields = mapping(entry, here)
        name = text(fields.get("instance_group_name"), f"{here}.instance_group_name")
        if not name or len(name) > LONGEST_NAME:
            raise wrong(f"{here}.instance_group_name", fields.get("instance_group_name"), "the group's name")
        types[name] = types.get(name) or text(fields.get("instance_type"), f"{here}.instance_type")
        for member in host_list(fields.get("hosts"), f"{here}.hosts"):
            if member not in known:
                raise UsageError(f"{here}.hosts has {shown(member)}, expected one of the hosts: {_names(hosts)}")
            if group_of.setdefault(member, name) != name:
                raise UsageError(f"{where} has {shown(member)} in two groups, {group_of[member]} and {name}")
    return tuple(
        InstanceGroup(name, instance_type, tuple(one for one in hosts if group_of.get(one) == name))
        for name, instance_type in types.items()
    )


def accelerated(instance_type: str) -> bool:
    """Whether instances of this type have GPUs, Neuron or Gaudi devices, by the family's name (``ml.p4d.24xlarge``)."""
    return bool(re.match(_ACCELERATED, instance_type))


def choose(cluster: Cluster, distribution: Distribution, asked: str = "") -> Choice:
    """The hosts that take part: those of the groups the job names, else of the group ``asked``, else of the only group.

    SDK v2 doesn't send the group's name with ``torch_distributed``. Then the only group with accelerators is used,
    and a warning says so.

    Raises:
        UsageError: a named group doesn't exist or is empty, or several groups could be meant.
    """
    filled = tuple(group for group in cluster.groups if group.hosts)
    if distribution.kind == "none":
        return Choice((), cluster.hosts)
    if distribution.groups:
        return _named(cluster, distribution.groups, "sagemaker_distribution_instance_groups")
    if asked and cluster.groups:
        return _named(cluster, (asked,), "MUSTER_GROUP")
    if len(filled) < 2:
        return Choice(tuple(group.name for group in filled), cluster.hosts)
    candidates = [group for group in filled if accelerated(group.instance_type)]
    listed = ", ".join(f"{group.name} ({group.instance_type or 'type unknown'})" for group in filled)
    if len(candidates) != 1:
        raise UsageError(
            f"the job has several instance groups, {listed}, and doesn't name the one that runs {distribution.kind}: "
            f"set MUSTER_GROUP to one of them in the job's environment"
        )
    chosen = candidates[0]
    note = Note(
        "warning",
        f"the job has several instance groups, {listed}, and names none for {distribution.kind}: {chosen.name} is "
        "used, the only one with accelerators; the other hosts start the program once each (MUSTER_GROUP chooses)",
    )
    return Choice((chosen.name,), chosen.hosts, (note,))


def check_choice(job: Job, settings: Settings) -> None:
    """Refuses a choice of groups that can't have an effect.

    Raises:
        UsageError: the group isn't there; or none is named, and the job has no distribution, so that its program runs
            on all hosts.
    """
    chosen = f"--outside {settings.outside}" if settings.outside != "wait" and not settings.group else ""
    names = [group.name for group in job.groups]
    if settings.group and settings.group not in names:
        none = "and the job has no instance groups, which an estimator gets by instance_groups=[...]"
        expected = f"expected one of {', '.join(names)}" if names else none
        raise UsageError(f"--group (MUSTER_GROUP) names the instance group {shown(settings.group)}, {expected}")
    if chosen and job.distribution.kind == "none":
        there = f"the hosts of all instance groups, {', '.join(names)}" if names else "all hosts"
        raise UsageError(
            f"{chosen}: the job has no distribution, so its program runs on {there}: name the group that trains "
            "(--group NAME, MUSTER_GROUP), or give the job roles (docs/roles.md)"
        )


def _named(cluster: Cluster, names: tuple[str, ...], source: str) -> Choice:
    by_name = {group.name: group for group in cluster.groups}
    if not by_name:
        return Choice(names, cluster.hosts)
    missing = [name for name in names if name not in by_name]
    if missing:
        raise UsageError(f"{source} names the instance group {shown(missing[0])}, expected one of {', '.join(by_name)}")
    members = {member for name in names for member in by_name[name].hosts}
    if not members:
        raise UsageError(f"{source} names the instance group {shown(names[0])}, which has no hosts")
    return Choice(names, tuple(one for one in cluster.hosts if one in members))
