"""Reads S3 and CodeArtifact with boto3, in a child process: our own Python if it has boto3, else the user's.

A child can be killed at once while it waits for the network, and when it ends, boto3's memory is free again.
"""

import json
import sys
from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.base import settings
from musterpoint.base.errors import FetchError
from musterpoint.core.code.tools import Execution, Tools
from musterpoint.core.data.mover import endpoint_of, region_of
from musterpoint.embedded.programs.registry import NO_BOTO3, fact_of, text_of

REQUEST = "MUSTER_AWS_REQUEST"
LARGE = 32 * 1024**2
"""Downloads of this many bytes and more show their progress, every :data:`EVERY` seconds."""
EVERY = 10.0


class Index(NamedTuple):
    """A package index of CodeArtifact. ``token`` is its password for the user ``aws``."""

    url: str
    token: str


def download(uri: str, path: str, region: str, environ: Mapping[str, str], interpreter: str, tools: Tools) -> None:
    """The object at ``uri`` (``s3://bucket/key``) as the file ``path``, resumed where connections break.

    Raises:
        FetchError: there is no such object, no right to it, no credentials, no network or no boto3; says which.
        StoppedEarly: this host was told to stop.
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket or not key:
        raise FetchError(f"the job's source {uri} names no object: expected s3://BUCKET/KEY")
    request = {
        "action": "get",
        "bucket": bucket,
        "key": key,
        "path": path,
        "region": region_of(region, environ),
        "endpoint": endpoint_of(environ),
    }
    shown_at = 0.0

    def show_progress(fact: dict[str, Any]) -> None:
        nonlocal shown_at
        if "retry" in fact:
            tools.say(f"{uri}: {fact['retry']}; going on at byte {fact['at']:,}")
        elif fact.get("size", 0) >= LARGE and fact["seconds"] - shown_at >= EVERY:
            shown_at = fact["seconds"]
            at, size = fact["at"] / 1024**2, fact["size"] / 1024**2
            tools.say(f"{uri}: {at:.0f} of {size:.0f} MiB after {shown_at:.0f} s")

    _ask(request, f"can't fetch {uri}", environ, interpreter, tools, show_progress)


def package_index(arn: str, environ: Mapping[str, str], interpreter: str, tools: Tools) -> Index:
    """The index of the CodeArtifact repository ``arn``, with a fresh token.

    Raises:
        FetchError: the ARN has another form, or the index can't be asked for.
        StoppedEarly: this host was told to stop.
    """
    fields = arn.split(":", 5)
    kind, _, names = fields[5].partition("/") if len(fields) == 6 else ("", "", "")
    domain, _, repository = names.partition("/")
    if fields[0] != "arn" or fields[2:3] != ["codeartifact"] or kind != "repository" or not domain or not repository:
        raise FetchError(
            f"CA_REPOSITORY_ARN={arn!r}: expected arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/REPOSITORY"
        )
    request = {
        "action": "index",
        "region": fields[3],
        "owner": fields[4],
        "domain": domain,
        "repository": repository,
        "endpoint": "",
    }
    found = _ask(request, f"can't get a token for {arn}", environ, interpreter, tools, lambda fact: None)
    return Index(str(found["url"]).rstrip("/") + "/simple/", str(found["token"]))


def _ask(
    request: dict[str, Any],
    cannot: str,
    environ: Mapping[str, str],
    interpreter: str,
    tools: Tools,
    on_fact: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Runs the child with ``request`` and returns its answer. Lines of progress go to ``on_fact``."""
    answer: dict[str, Any] = {}
    words: list[str] = []

    def line(text: str) -> None:
        fact = fact_of(text)
        if fact is None:
            words.append(text)
        elif "done" in fact or "error" in fact:
            answer.update(fact)
        else:
            on_fact(fact)

    text = json.dumps({**request, "no_boto3": NO_BOTO3})
    environ = {**settings.without_own(environ), REQUEST: text}  # an endpoint's URL may have a password
    tried = []
    for python in dict.fromkeys(filter(None, (sys.executable, interpreter))):
        command = (python, "-W", "ignore", "-")
        try:
            program = Execution(command, environ, "/", stdin=text_of("aws_reader").encode())
            status = tools.run(program, line, show_stderr=True)
        except OSError as error:
            tried.append(f"{python} ({error.strerror})")
            continue
        if status != NO_BOTO3:
            if "done" in answer:
                return answer
            why = answer.get("error") or " ".join(words[-3:]) or f"the reader ended with code {status}"
            raise FetchError(f"{cannot}: {why}")
        tried.append(f"{python} ({answer.pop('error')})")
    raise FetchError(
        f"{cannot}: this takes boto3, which no Python here has: {', '.join(tried)}; "
        "pip install boto3 in the image (the extra musterpoint[aws])"
    )
