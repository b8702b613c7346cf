"""Makes values from the texts of options and variables. Each reader raises ValueError, which says what was expected."""

import re
import signal
from typing import Callable

TF_ROLES = ("worker", "ps", "evaluator")
MOST_COUNTED = 65536
"""The highest count that an option or a file may have: of hosts, of slots, of processes."""
_MOST_DIGITS = 80
_LONGEST_TIME = 1e9
"""Seconds: more than thirty years."""
MOST_HOSTS = 131072
"""The most hosts that a job can have where they are only counted."""
LONGEST_TOPOLOGY = 256
"""Characters of a host's switches."""


_TIME = re.compile(r"(?=.)(?:([0-9.]+)h)?(?:([0-9.]+)m)?(?:([0-9.]+)s)?")
"""Hours, minutes and seconds, each with its letter."""


def seconds(text: str) -> float:
    found = _TIME.fullmatch(text.strip())
    try:
        if found is None:
            value = float(text)
        else:
            value = sum(float(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1)))
    except ValueError:
        value = -1.0
    if not 0 <= value <= _LONGEST_TIME:
        raise ValueError("expected a number of seconds, 0 to 1e9, or a time such as 90s, 5m or 1h30m")
    return value


def positive_seconds(text: str) -> float:
    value = seconds(text)
    if not value:
        raise ValueError("expected a number of seconds above 0 (leave it out for no limit)")
    return value


def _whole(least: int, most: int, expected: str = "") -> Callable[[str], int]:
    """A reader of whole numbers, which raises ValueError for what is none from ``least`` to ``most``."""

    def read(text: str) -> int:
        text = text.strip()
        if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS or not least <= int(text) <= most:
            raise ValueError(expected or f"expected a whole number, {least} to {most}")
        return int(text)

    return read


read_count = _whole(1, MOST_COUNTED)
"""Reads a number of hosts, ranks or the like."""
place = _whole(0, MOST_HOSTS - 1)
nnodes = _whole(1, MOST_HOSTS)
restarts = _whole(0, 999999, "expected a whole number, 0 (never) to 999999")
kept = _whole(1, 999999)
port = _whole(0, 65535, "expected a port number, 1 to 65535 (0: any free one)")


def name(text: str) -> str:
    if not text.strip() or len(text) > 255 or not text.isprintable():
        raise ValueError("expected a name of at most 255 characters that can be printed")
    return text.strip()


def leader(text: str) -> str:
    split_endpoint(text)
    return text.strip()


def split_endpoint(text: str) -> tuple[str, int]:
    """The host and port (0: none given) of ``HOST[:PORT]``; an IPv6 address with a port is in brackets.

    Raises:
        ValueError: the text is no endpoint.
    """
    text = text.strip()
    host, port = text, ""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise ValueError("expected HOST or HOST:PORT, an IPv6 address with a port as [ADDRESS]:PORT")
        port = port[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
        if not port:
            raise ValueError("expected HOST or HOST:PORT")
    if not host or set(host) & set("/@ []") or (port and not (port.isdecimal() and 0 < int(port) <= 65535)):
        raise ValueError("expected HOST or HOST:PORT, the port from 1 to 65535")
    return host, int(port or 0)


def bracketed(host: str) -> str:
    """``host`` as it stands before ``:PORT``: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def switches(text: str) -> str:
    names = text.replace(",", ".").replace("/", ".").split(".")
    names = [name.strip() for name in names if name.strip()]
    if not names or not text.isprintable() or len(text) > LONGEST_TOPOLOGY:
        raise ValueError(
            f"expected the names of switches with dots, commas or slashes between them, {LONGEST_TOPOLOGY} characters "
            "at most"
        )
    return ".".join(names)


def code(text: str) -> int:
    if not text.strip().isdecimal() or int(text) > 255:
        raise ValueError("expected an exit code, 0 to 255")
    return int(text)


def ranks(text: str) -> str:
    if text != "all" and not all(part.strip().isdecimal() for part in text.removeprefix("local:").split(",")):
        raise ValueError(
            "expected 'all', global ranks separated by commas, such as 0,8, or each host's own, such as local:0"
        )
    return text


def roles(text: str) -> str:
    asked = [part.strip().partition("=") for part in text.split(",")]
    known = all(name in TF_ROLES and count.isdecimal() for name, _, count in asked)
    counts = {name: int(count) for name, _, count in asked} if known else {}
    needed = min((counts.get(name, 1) for name in ("worker", "ps")), default=0)
    if len(counts) < len(asked) or not needed or counts.get("evaluator", 0) > 1:
        raise ValueError("expected how many of each role, at least one worker and one ps, such as worker=2,ps=1")
    return ",".join(f"{name}={count}" for name, count in counts.items())


def channels(text: str) -> str:
    for line in text.splitlines():
        name, equals, place = line.partition("=")
        if not name or not equals or not place:
            raise ValueError("expected NAME=URI, such as train=s3://BUCKET/PREFIX, one a line")
    return text.strip()


def signal_name(text: str) -> str:
    name = text.upper().removeprefix("SIG")
    if not hasattr(signal, "SIG" + name):
        raise ValueError("expected the name of a signal, such as TERM or USR2")
    return name
