"""What the user's code takes of AWS, by the programs that move data: an object of S3, an index of CodeArtifact.

They run in our own Python if it has boto3, else in the user's. A child can be killed at once while it waits for the
network, and when it ends, boto3's memory is free again.
"""

from typing import Mapping

from musterpoint.base.errors import FetchError
from musterpoint.base.records import NamedTuple
from musterpoint.core.code.tools import Execution, Tools
from musterpoint.core.data.mover_process import Access, Run, Say, move
from musterpoint.core.data.moves import bring_object
from musterpoint.embedded.programs.registry import CODE_ARTIFACT

BOTO3 = "pip install boto3 in the image (the extra musterpoint[aws])"


class Index(NamedTuple):
    """A package index of CodeArtifact. ``token`` is its password for the user ``aws``."""

    url: str
    token: str


def download(uri: str, directory: str, region: str, environ: Mapping[str, str], interpreter: str, tools: Tools) -> str:
    """Brings the object at ``uri`` (``s3://bucket/key``) to ``directory``; returns its path there.

    Raises:
        FetchError: there is no such object, no right to it, no credentials, no network or no boto3; says which.
        StoppedEarly: this host was told to stop.
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket or not key or key.endswith("/"):
        raise FetchError(f"the job's source {uri} names no object: expected s3://BUCKET/KEY")
    return bring_object(uri, directory, Access(environ, (interpreter,), region), tools.say, _runner(tools))


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
    request = {"uri": arn, "region": fields[3], "owner": fields[4], "domain": domain, "repository": repository}
    access = Access(environ, (interpreter,))
    what = "can't get a token for the package index"
    found = move(what, request, access, tools.say, _runner(tools), program=CODE_ARTIFACT, takes=BOTO3)
    return Index(str(found["url"]).rstrip("/") + "/simple/", str(found["token"]))


def _runner(tools: Tools) -> Run:
    def run(argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        return tools.run(Execution(argv, environ, "/", ends_with_stdin=True), on_line, show_stderr=True)

    return run
