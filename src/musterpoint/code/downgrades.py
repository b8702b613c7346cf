"""What an installer made older, told from its own lines, where musterpoint's extras need it newer."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence


class Need(NamedTuple):
    """The oldest version (setup.cfg) that does what ``use`` says."""

    version: str
    use: str


NEEDS = {
    "boto3": Need("1.34", "code from S3 and packages from CodeArtifact"),
    "docker": Need("7", "muster local --backend docker"),
    "mpi4py": Need("4", "the launcher mpi, which ends all ranks when one raises"),
    "nvidia-ml-py": Need("12", "watching the GPUs"),
    "rich": Need("13", "the tables and pictures of muster"),
    "sagemaker-train": Need("1.20", "musterpoint as a distribution of SDK v3"),
    "torch": Need("2.2", "the launcher torchrun"),
    "watchdog": Need("4", "the sync of output/intermediate to S3"),
}
"""What musterpoint's extras need."""


class Change(NamedTuple):
    """One package: ``before`` is empty where it wasn't there."""

    name: str
    before: str
    after: str


def sentences(lines: Sequence[str]) -> list[str]:
    """What to tell people of an install that wrote ``lines``: too old is a warning, merely older a notice."""
    told = []
    for change in changes(lines):
        need = NEEDS.get(_same(change.name))
        if need is None:
            continue
        place = f" in place of {change.before}" if change.before else ""
        done = f"{change.name} {change.after} was installed{place}"
        if numbers(change.after) < numbers(need.version):
            told.append(f"warning: {done}; {need.use} needs {need.version} or newer")
        elif change.before and numbers(change.after) < numbers(change.before):
            told.append(f"{done}, which is older; it is new enough for {need.use} ({need.version})")
    return told


def changes(lines: Sequence[str]) -> Iterator[Change]:
    """The packages that pip or uv installed, with what they replaced."""
    before: dict[str, str] = {}
    for line in lines:
        words = line.split()
        if words[:3] == ["Found", "existing", "installation:"] and len(words) == 5:
            before[_same(words[3])] = words[4]
        elif words[:1] == ["-"] and "==" in line:
            name, _, version = words[1].partition("==")
            before[_same(name)] = version
        elif words[:1] == ["+"] and "==" in line:
            name, _, version = words[1].partition("==")
            yield Change(name, before.get(_same(name), ""), version)
        elif words[:2] == ["Successfully", "installed"]:
            for word in words[2:]:
                name, _, version = word.rpartition("-")
                yield Change(name, before.get(_same(name), ""), version)


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, to compare it by."""
    found = []
    for part in version.partition("+")[0].split("."):
        if not part.isdecimal():
            break
        found.append(int(part))
    return tuple(found)


def _same(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
