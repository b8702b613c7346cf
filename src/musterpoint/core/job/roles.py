"""The roles of a job: ``[[roles]]`` of its file, and those of ``--role`` → which host has which program."""

from typing import Any, Callable, Mapping

from musterpoint.base.errors import UsageError, similar
from musterpoint.base.job_text import JobText, text_of
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import PREFIX, ROLE_HOSTS
from musterpoint.core.job.fields import shown
from musterpoint.core.job.model import Job, Readiness, Role

KEYS = (
    *("name", "hosts", "group", "beside", "gpus", "program", "module", "arguments", "launcher", "slots", "env"),
    *("ready", "after", "ends"),
)
"""Keys of a role in the file."""
LATER = ("restarts", "max_restarts", "restart_on", "replicas", "het_group", "replicated_job", "leader_worker_set")
"""Keys that users may expect, and that aren't there yet."""
ENDS = ("job", "with", "never")
MOST_ROLES = 16
_MOST_NAME = 40
_NAME = "a name of letters, digits, - and _, such as trainer"
_READY = '"port 8000", "http :8000/health" or "line \'TEXT\'"'

Where = Callable[[str], str]
"""The place of a key, for messages."""


class Asked(NamedTuple):
    """A role before its hosts are known. ``hosts``: how many; None: those that are left. ``group``: an instance group.
    ``where`` gives the places of its keys.
    """

    role: Role
    hosts: int | None
    group: str
    where: Where


def of_file(text: JobText) -> list[Asked]:
    """The roles of a job's file.

    Raises:
        UsageError: one is wrong; the message has the line.
    """
    roles = text.values.get("roles", [{}])
    if not isinstance(roles, list) or not roles or not all(isinstance(role, dict) for role in roles):
        raise UsageError(f"{text.where}: roles is {shown(roles)}, expected a [[roles]] table for each role")
    return [_role(role, at, text) for at, role in enumerate(roles)]


def of_option(line: str) -> Asked:
    """The role of ``--role NAME:HOSTS:PROGRAM``, a service.

    Raises:
        UsageError: it is none.
    """
    name, _, rest = line.partition(":")
    count, _, program = rest.partition(":")
    words = program.split()
    if not is_name(name) or not count.isdecimal() or not int(count) or not words:
        raise UsageError(f"--role={line!r}: expected NAME:HOSTS:PROGRAM, such as policy:1:serve.sh")
    role = Role(name, (), words[0], False, tuple(words[1:]), "", ends="with")
    return Asked(role, int(count), "", lambda key: f"--role={line!r}")


def _role(values: Mapping[str, Any], at: int, text: JobText) -> Asked:
    place: Where = lambda key: f"{text.place(at, key)}: {key or 'the role'}"  # noqa: E731
    for key in values:
        if key in LATER:
            raise UsageError(f"{place(key)} isn't possible yet: the options of the job hold for all roles")
        if key not in KEYS:
            near = similar(key, KEYS)
            meant = f"; did you mean {near}?" if near else f"; expected {', '.join(KEYS)}"
            raise UsageError(f"{place(key)} is nothing that a role has{meant}")
    take = _Taker(values, place)
    name = take.text("name")
    if not is_name(name):
        raise UsageError(f"{place('name')} is {shown(values.get('name'))}, expected {_NAME}")
    beside, group, module = take.text("beside"), take.text("group"), take.text("module")
    if sum(map(bool, (beside, group, "hosts" in values))) > 1:
        raise UsageError(f"{place('name')}: {name} has several of hosts, group and beside; expected one")
    if module and values.get("program"):
        raise UsageError(f"{place('module')}: {name} has program and module; leave one of them out")
    if "gpus" in values and not beside:
        raise UsageError(f"{place('gpus')}: {name} has its hosts to itself; gpus is for a role beside another one")
    ends = values.get("ends", "job" if at == 0 else "with")
    if ends not in ENDS:
        raise UsageError(f"{place('ends')} is {shown(ends)}, expected {', '.join(ENDS)}")
    own = bool(module or values.get("program"))
    arguments = take.texts("arguments") if "arguments" in values else () if own and ends != "job" else None
    role = Role(
        name,
        (),
        module or take.text("program"),
        bool(module),
        arguments,
        take.text("launcher") or ("auto" if ends == "job" and not beside else ""),
        take.number("slots"),
        take.pairs("env"),
        _readiness(take.text("ready"), place("ready")),
        take.texts("after"),
        ends,
        beside,
        take.number("gpus") or 0,
    )
    return Asked(role, take.number("hosts"), group, place)


class _Taker(NamedTuple):
    """Checks the values of one role."""

    values: Mapping[str, Any]
    place: Where

    def text(self, key: str) -> str:
        value = self.values.get(key, "")
        if not isinstance(value, str) or "\0" in value or (key in self.values and not value):
            raise UsageError(f"{self.place(key)} is {shown(value)}, expected a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        value = [value] if isinstance(value, str) and key == "after" else value
        if not isinstance(value, list) or not all(isinstance(one, (str, int, float)) for one in value):
            raise UsageError(f"{self.place(key)} is {shown(value)}, expected a list of texts")
        return tuple(map(text_of, value))

    def number(self, key: str) -> int | None:
        value = self.values.get(key)
        if value is not None and (type(value) is not int or not 0 < value < 65536):
            raise UsageError(f"{self.place(key)} is {shown(value)}, expected a whole number from 1")
        return value

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        value = self.values.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(one, (str, int, float)) for one in value.values()):
            raise UsageError(f"{self.place(key)} is {shown(value)}, expected a table of variables")
        wrong = next((name for name in value if not name.isidentifier()), "")
        if wrong:
            raise UsageError(f"{self.place(key)}: {shown(wrong)} can't be the name of a variable")
        return tuple((name, text_of(one)) for name, one in value.items())


def is_name(text: str) -> bool:
    """A role may have this name: its variable has it, too."""
    return (
        0 < len(text) <= _MOST_NAME and text[0].isalpha() and text.replace("-", "_").isidentifier() and text.isascii()
    )


def _readiness(text: str, where: str) -> Readiness:
    kind, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    port, path = rest, ""
    if kind == "http" and rest.startswith(":"):
        port, slash, path = rest[1:].partition("/")
        path = f"/{path}" if slash else "/"
    if not text:
        return Readiness()
    if kind == "line" and len(rest) > 2 and rest[0] == rest[-1] and rest[0] in "'\"":
        return Readiness("line", 0, rest[1:-1])
    if kind == ("http" if path else "port") and port.isdecimal() and 0 < int(port) < 65536 and path.isprintable():
        return Readiness("http" if path else "port", int(port), path)
    raise UsageError(f"{where} is {shown(text)}, expected {_READY}")


# -- all roles of a job, and its hosts --


def with_roles(job: Job, asked: list[Asked], leads: Callable[[Role], bool]) -> Job:
    """``job`` as this host's role has it. ``leads``: whether the first host of a role must lead the job.

    Raises:
        UsageError: the roles don't go together, or don't fit the job's hosts.
    """
    _check(asked)
    if job.unnamed is not None and job.unnamed.node_rank is None:
        raise UsageError("a job with roles needs the place of each host: --node-rank (MUSTER_NODE_RANK) on every host")
    if job.started is not None and job.started.local_size > 1:
        raise UsageError("a job with roles needs one entry point on each host, and the platform has started several")
    roles = _placed(job, asked)
    leading = [role for role in roles if not role.beside and leads(role)]
    if len(leading) > 1:
        names = " and ".join(role.name for role in leading)
        where = next(each.where for each in asked if each.role.name == leading[1].name)
        raise UsageError(
            f"{where('launcher')}: {names} have launchers that start programs on other hosts, which only the first "
            "host of one role may: give one of them the launcher torchrun or ranks"
        )
    first = (leading or [role for role in roles if not role.beside])[0]
    if job.unnamed is not None and first.hosts[0] != job.hosts[0]:
        raise UsageError(
            f"{first.name} has to have the first host, where the roll call is: its launcher starts programs on others; "
            "let it be the first role"
        )
    own = next(role for role in roles if not role.beside and job.current_host in role.hosts)
    return job._replace(roles=roles, leads=first.name).seen_by(own)


def _check(asked: list[Asked]) -> None:
    """Raises a UsageError where roles contradict each other."""
    if len(asked) > MOST_ROLES:
        raise UsageError(f"{asked[MOST_ROLES].where('name')}: more than {MOST_ROLES} roles")
    by_name = {each.role.name: each for each in asked}
    variables: set[str] = set()
    for role, _, _, where in asked:
        if variable_of(role.name) in variables:
            raise UsageError(f"{where('name')}: two roles are called {role.name} (or have its variable)")
        variables.add(variable_of(role.name))
        for name in role.after:
            if name not in by_name:
                raise _unknown(where("after"), name, by_name)
        if role.beside and (role.beside not in by_name or by_name[role.beside].role.beside):
            raise _unknown(where("beside"), role.beside, {n: e for n, e in by_name.items() if not e.role.beside})
        for key, value in (("launcher", role.launcher), ("slots", role.slots)):
            if role.beside and value:
                raise UsageError(f"{where(key)}: {role.name} is one process beside {role.beside}; leave it out")
        for name, _ in role.env:
            if name.startswith(PREFIX):
                raise UsageError(
                    f"{where('env')}: {name} is musterpoint's own; options of the job stand above the roles"
                )
        if role.beside and role.ends == "job" and by_name[role.beside].role.ends != "job":
            raise UsageError(
                f"{where('ends')}: {role.name} is beside {role.beside}, which is told to end when the job's roles are "
                f"through, so the job would wait for ever: put it beside a role whose end is the job's"
            )
        _check_circle(role.name, by_name, where)
    if not any(each.role.ends == "job" for each in asked):
        raise UsageError(f'{asked[0].where("ends")}: no role has ends = "job", so the job would never end')
    if all(each.role.beside for each in asked):
        raise UsageError(f"{asked[0].where('beside')}: no role has hosts of its own")


def _unknown(where: str, name: str, known: Mapping[str, Asked]) -> UsageError:
    near = similar(name, tuple(known))
    return UsageError(f"{where} names {name}, expected {near or ' or '.join(known) or 'a role with hosts of its own'}")


def _check_circle(name: str, by_name: Mapping[str, Asked], where: Where) -> None:
    path = [name]

    def follow(at: str) -> None:
        for one in by_name[at].role.after:
            if one == name:
                raise UsageError(f"{where('after')}: {' waits for '.join((*path, name))}: none of them would start")
            if one in by_name and one not in path:
                path.append(one)
                follow(one)
                path.pop()

    follow(name)


def _placed(job: Job, asked: list[Asked]) -> tuple[Role, ...]:
    """The roles with their hosts."""
    of_groups = {group.name: group.hosts for group in job.groups}
    taken: dict[str, str] = {}
    hosts_of: dict[str, tuple[str, ...]] = {}
    for role, _, group, where in asked:
        if group:
            if not of_groups.get(group):
                groups = ", ".join(of_groups) or "none (SageMaker's, or those of --groups in muster local)"
                raise UsageError(f"{where('group')} names {group}, and the job's instance groups are: {groups}")
            hosts_of[role.name] = of_groups[group]
    free = [host for host in job.hosts if not any(host in hosts for hosts in hosts_of.values())]
    counted = [each for each in asked if not each.role.beside and not each.group]
    open_ended = [each for each in counted if each.hosts is None]
    if len(open_ended) > 1:
        raise UsageError(
            f"{open_ended[1].where('name')}: only one role may be without hosts: it has those that are left"
        )
    rest = len(free) - sum(each.hosts or 0 for each in counted)
    wanted = sum(each.hosts or 0 for each in counted) + len(open_ended)
    if rest < len(open_ended) or (rest and not open_ended):
        need = f"{wanted} or more hosts" if open_ended else f"{wanted} host{'s' if wanted != 1 else ''}"
        said = f"the roles take {need}" + (" beside those of instance groups" if hosts_of else "")
        raise UsageError(f"{asked[0].where('hosts')}: {said}, and the job has {len(free)}")
    for each in counted:
        count = each.hosts if each.hosts is not None else rest
        hosts_of[each.role.name], free = tuple(free[:count]), free[count:]
    for name, hosts in hosts_of.items():
        for host in hosts:
            if taken.setdefault(host, name) != name:
                raise UsageError(
                    f"{taken[host]} and {name} both have {host}: a host has one role, and others beside it"
                )
    if free:
        raise UsageError(f"no role has {', '.join(free[:4])}: give every host one")
    return tuple(each.role._replace(hosts=hosts_of[each.role.beside or each.role.name]) for each in asked)


def variable_of(name: str) -> str:
    """The variable with the addresses of a role's hosts."""
    return f"{ROLE_HOSTS}{name.upper().replace('-', '_')}"
