"""Reads the output of pip and uv: why they failed, and which versions they changed."""

from __future__ import annotations

from typing import Iterator, Sequence

from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import clip

LIMIT = 560
"""Bytes of the reason at most; a whole failure reason has 900."""

_NETWORK = (
    "connection broken by",
    "newconnectionerror",
    "connectionerror",
    "connecttimeout",
    "readtimeout",
    "read timed out",
    "timed out",
    "temporary failure in name resolution",
    "name or service not known",
    "failed to resolve",
    "network is unreachable",
    "no route to host",
    "connection refused",
    "connection reset",
    "connection aborted",
    "remotedisconnected",
    "remote end closed",
    "incompleteread",
    "protocolerror",
    "502 server error",
    "503 server error",
    "504 server error",
    "500 server error",
    "429 client error",
    "too many requests",
    "error sending request",
    "failed to fetch",
    "dns error",
    "operation timed out",
    "sslerror",
    "connection was closed",
    "incomplete-download",
    "max retries exceeded",
    "error responses",
)
_NOT_ERRORS = (
    "error: resolutionimpossible",
    "error: pip's dependency resolver",
    "error: subprocess-exited-with-error",
    "error: metadata-generation-failed",
    "error: failed to build installable wheels",
    "error: could not build wheels",
    "error: exception:",
)
"""Lines that say only that there was an error; the lines around them say which one."""


def network_words(lines: Sequence[str]) -> str:
    """The network error in the first line that has one; empty where no line has."""
    for line in lines:
        lowered = line.lower()
        if any(mark in lowered for mark in _NETWORK):
            text = line.strip()
            for start in ("connection broken by ", "(Caused by ", "Could not fetch URL "):
                text = text.partition(start)[2] or text
            text = text.rpartition(">: ")[2].partition("': /")[0].removesuffix(" - skipping").strip("'\"() ")
            return clip(text, 240)
    return ""


def found_nothing(lines: Sequence[str]) -> bool:
    """Whether an index had no version at all of a package: its name is wrong, or the index didn't answer."""
    return any("(from versions: none)" in line for line in lines)


def lacks_build_tools(lines: Sequence[str]) -> bool:
    """Whether a package couldn't be built because its build tools couldn't be installed."""
    return any("install build dependencies did not run successfully" in line for line in lines)


def reason(lines: Sequence[str]) -> str:
    """The installer's own error message, on one line; the last line where nothing looks like an error."""
    lines = [line.rstrip() for line in lines]
    for find in (_built, _conflict, _hashes, _uv, _errors, _configuration, _traceback):
        found = find(lines)
        if found:
            return clip(" ".join(found.split()), LIMIT)
    return clip(next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing"), LIMIT)


def _errors(lines: Sequence[str]) -> str:
    """pip's ``ERROR:`` lines, which repeat each other."""
    found = [
        line.strip().partition(":")[2].strip()
        for line in lines
        if line.strip().lower().startswith("error:") and not line.strip().lower().startswith(_NOT_ERRORS)
    ]
    return "; ".join(dict.fromkeys(filter(None, found[:3])))


def _configuration(lines: Sequence[str]) -> str:
    """A ``pip.conf`` that can't be read: what is wrong, and in which file."""
    start = "Configuration file could not be loaded."
    return " ".join(lines[lines.index(start) :][:3]) if start in lines else ""


def _conflict(lines: Sequence[str]) -> str:
    """Two requirements that exclude each other, and what each of them wants."""
    for at, line in enumerate(lines):
        if line.startswith("ERROR: Cannot install "):
            reasons = []
            for later in lines[at + 1 :]:
                if later.startswith("To fix this"):
                    break
                if later.startswith("    ") and later.strip():
                    reasons.append(later.strip())
            return line.removeprefix("ERROR: ") + (f" {'; '.join(reasons)}" if reasons else "")
    return ""


def _built(lines: Sequence[str]) -> str:
    """A package that couldn't be built: pip's headline, and the error in the build's output."""
    for at, line in enumerate(lines):
        text = line.strip()
        if text.startswith("×") and "did not run successfully" in text:
            said = []
            for later in lines[at + 1 :]:
                if "[end of output]" in later:
                    break
                said.append(later.strip(" │╰─>"))
            words = [word for word in said if word and not word.startswith(("exit code:", "["))]
            if "See above for output." in words:
                words = [each.strip() for each in _run_before(lines[:at])]
            headline = text.lstrip("× ").rstrip(".")
            ending = next((word for word in said if word.startswith("exit code:")), "")
            return f"{_package_before(lines, at)}{headline}: {_last_words(words) or f'no output, {ending}'}"
    return ""


def _run_before(lines: Sequence[str]) -> list[str]:
    """The output, above its headline, of a program that pip ran, such as git."""
    began = next((at for at in reversed(range(len(lines))) if lines[at].strip().startswith("Running command ")), None)
    said = [] if began is None else lines[began + 1 :]
    return [line for line in said if line.strip() and not line.strip().lower().startswith(_NOT_ERRORS)]


def _hashes(lines: Sequence[str]) -> str:
    """A package whose hash isn't the one that the requirements want: its name, and both."""
    for at, line in enumerate(lines):
        if "DO NOT MATCH THE HASHES" in line:
            rest = [later.strip() for later in lines[at + 1 :] if later.strip()]
            package = next((each.partition(" from ")[0] for each in rest), "a package")
            wanted = " or ".join(
                each.rpartition(" ")[2] for each in rest if each.lower().startswith(("expected", "or "))
            )
            got = next((each.rpartition(" ")[2] for each in rest if each.startswith("Got ")), "another")
            return f"{package} isn't the one that the requirements name: expected sha256 {wanted}, got {got}"
    return ""


def _last_words(words: Sequence[str]) -> str:
    """The compiler's first error and the whole last exception; else git's error, or the last line."""
    exceptions = [at for at, word in enumerate(words) if _is_exception(word)]
    why = [word for word in words if ": error: " in word or "fatal error: " in word][:1]
    if exceptions and words[exceptions[-1]] not in why:
        why.append(" ".join(words[exceptions[-1] :]))
    ends = [at for at, word in enumerate(words) if word.startswith("fatal: ")]  # what git adds to it is advice
    said = words[max(0, ends[0] - 1) : ends[-1] + 1] if ends else words[-1:]
    return "; ".join(why or [word for word in said if not word.startswith(("warning: ", "Cloning into "))])


def _package_before(lines: Sequence[str], at: int) -> str:
    """The package that was being built: pip names it in an earlier line, when it collects or builds it."""
    for line in reversed(lines[:at]):
        for start in ("Collecting ", "Processing ", "Building wheel for ", "Obtaining "):
            if line.strip().startswith(start):
                name = line.strip().removeprefix(start).split(" (")[0]
                return "" if "/" in name else name + ": "
    return ""


def _uv(lines: Sequence[str]) -> str:
    """uv's error with its causes: separate lines, or in older versions a tree below a ``×``."""
    for at, line in enumerate(lines):
        if line.startswith("error: ") and any(later.startswith("  cause: ") for later in lines[at + 1 : at + 2]):
            causes = [later.strip() for later in lines[at + 1 :] if later.startswith("  ")]
            return "; ".join([line.removeprefix("error: "), *(cause.removeprefix("cause: ") for cause in causes)])
        if line.strip().startswith("×") and "did not run successfully" not in line:
            words = [line.strip().lstrip("× ")]
            for later in lines[at + 1 :]:
                if not later.startswith((" ", "├", "│", "╰")) or later.strip().startswith("hint:"):
                    break
                words.append(later.strip(" ├│╰─▶>"))
            return " ".join(filter(None, words))
    return ""


def _traceback(lines: Sequence[str]) -> str:
    """The exception with which a broken pip ended."""
    return next((line.strip() for line in reversed(lines) if _is_exception(line)), "")


def _is_exception(line: str) -> bool:
    name, colon, _ = line.strip().partition(":")
    last = name.rpartition(".")[2]
    return bool(colon) and last.isidentifier() and last.endswith(("Error", "Exception", "Interrupt"))


class Need(NamedTuple):
    """The oldest version (setup.cfg) that does what ``use`` says."""

    version: str
    use: str


NEEDS = {
    "boto3": Need("1.34", "code from S3 and packages from CodeArtifact"),
    "fsspec": Need("2023.10", "channels, checkpoints and uploads at URIs other than S3's"),
    "docker": Need("7", "muster local --backend docker"),
    "mpi4py": Need("4", "the launcher mpi, which ends all ranks when one raises"),
    "nvidia-ml-py": Need("12", "watching the GPUs"),
    "py-spy": Need("0.4", "the stacks of ranks that stand still, and of programs that they started"),
    "rich": Need("13", "the tables and pictures of muster"),
    "shtab": Need("1.7", "muster completion"),
    "sagemaker-train": Need("1.20", "musterpoint as a distribution of SDK v3"),
    "torch": Need("2.2", "the launcher torchrun"),
}
"""The oldest packages that musterpoint's extras can use."""


class Change(NamedTuple):
    """One package: ``before`` is empty where it wasn't there."""

    name: str
    before: str
    after: str


def downgrades(lines: Sequence[str]) -> list[str]:
    """Messages about packages that an install (its output: ``lines``) made older; too old for an extra is a warning."""
    found = []
    for change in changes(lines):
        need = NEEDS.get(_normalized(change.name))
        if need is None:
            continue
        place = f" in place of {change.before}" if change.before else ""
        done = f"{change.name} {change.after} was installed{place}"
        if numbers(change.after) < numbers(need.version):
            found.append(f"warning: {done}; {need.use} needs {need.version} or newer")
        elif change.before and numbers(change.after) < numbers(change.before):
            found.append(f"{done}, which is older; it is new enough for {need.use} ({need.version})")
    return found


def changes(lines: Sequence[str]) -> Iterator[Change]:
    """The packages that pip or uv installed, with what they replaced."""
    before: dict[str, str] = {}
    for line in lines:
        words = line.split()
        if words[:3] == ["Found", "existing", "installation:"] and len(words) == 5:
            before[_normalized(words[3])] = words[4]
        elif words[:1] == ["-"] and "==" in line:
            name, _, version = words[1].partition("==")
            before[_normalized(name)] = version
        elif words[:1] == ["+"] and "==" in line:
            name, _, version = words[1].partition("==")
            yield Change(name, before.get(_normalized(name), ""), version)
        elif words[:2] == ["Successfully", "installed"]:
            for word in words[2:]:
                name, _, version = word.rpartition("-")
                yield Change(name, before.get(_normalized(name), ""), version)


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparing."""
    found = []
    for part in version.partition("+")[0].split("."):
        if not part.isdecimal():
            break
        found.append(int(part))
    return tuple(found)


def _normalized(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
