"""IAM's SimulatePrincipalPolicy, which SDK v3 asks before a job and moto lacks: here every role may do everything."""

from __future__ import annotations

import urllib.parse
from xml.sax.saxutils import escape

_ACTION = "SimulatePrincipalPolicy"
_RESULT = (
    "<member><EvalActionName>{}</EvalActionName><EvalResourceName>*</EvalResourceName>"
    "<EvalDecision>allowed</EvalDecision></member>"
)


def simulated(body: bytes) -> bytes | None:
    """The answer to a request of IAM with this ``body``; None where it asks something else."""
    fields = urllib.parse.parse_qs(body.decode("utf-8", "replace"))
    if fields.get("Action") != [_ACTION]:
        return None
    actions = [value for name, values in fields.items() if name.startswith("ActionNames.member.") for value in values]
    results = "".join(_RESULT.format(escape(action)) for action in actions)
    return (
        f'<{_ACTION}Response xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><{_ACTION}Result>'
        f"<IsTruncated>false</IsTruncated><EvaluationResults>{results}</EvaluationResults></{_ACTION}Result>"
        f"<ResponseMetadata><RequestId>muster</RequestId></ResponseMetadata></{_ACTION}Response>"
    ).encode()
