"""The WSGI application in front of everything. It checks who calls, and hands the call on."""

from __future__ import annotations

import json
import secrets
import time
import traceback
import urllib.parse
from typing import Any, Callable, Iterable, Mapping
from xml.sax.saxutils import escape

from musterpoint.serve import control, signatures, validation
from musterpoint.serve.credentials import Credentials, Pair
from musterpoint.serve.errors import ApiError, read_json
from musterpoint.serve.moto_services import Start, body_of, simulated
from musterpoint.serve.operations import Context, Request
from musterpoint.serve.operations.table import OPERATIONS, is_of_moto, refused

Page = Callable[[Mapping[str, Any], Start], Iterable[bytes]]
JSON_TYPE = "application/x-amz-json-1.1"
PREFIX = "SageMaker."
OWN = "/_muster"
"""Paths of the server's own: its page, and what isn't AWS's."""
_OF_MOTO_ITSELF = "moto-api"
"""Begins paths at which moto takes a reset, whatever a call was signed for."""
_NO_CONTROL = "these keys can't control the server: only its own pair can"
_STATUS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    408: "Request Timeout",
    500: "Internal Server Error",
    501: "Not Implemented",
}


class Dispatcher:
    """``page`` answers what isn't AWS's: the paths below ``/_muster``, and ``/`` for browsers."""

    def __init__(self, context: Context, credentials: Credentials, page: Page) -> None:
        self._context, self._credentials, self._page = context, credentials, page

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        request = _signed(environ)
        service = "s3"
        try:
            signatures.refuse_version_2(request)
            service = ""
            claim = signatures.claim_of(request)
            if claim is None:
                if request.path == "/" or request.path.startswith(OWN):
                    return self._page(environ, start)
                text = "Request is missing Authentication Token"
                raise ApiError("MissingAuthenticationTokenException", text, 403)
            service = claim.service
            pair = self._pair(claim.access_key, service)
            signatures.verify(request, claim, pair.secret_key, time.time())
            if service.lower() == validation.SERVICE and request.path == "/":  # moto takes it in any case
                return self._sagemaker(environ, start, request.query, claim.region)
            if service == control.SERVICE:
                if not pair.controls:
                    raise ApiError("AccessDeniedException", _NO_CONTROL, 403)
                body = json.dumps(control.answer(self._context, request.path, json.loads(body_of(environ)))).encode()
                return _answer(start, 200, body, JSON_TYPE)
            return self._moto(environ, start, service, pair.controls)
        except ApiError as error:
            return _refuse(environ, start, error, service)
        except (ConnectionError, TimeoutError):  # the client's connection: nobody reads an answer
            raise
        except Exception as error:
            self._context.say(traceback.format_exc())
            operation = environ.get("HTTP_X_AMZ_TARGET", "").removeprefix(PREFIX)
            text = f"{operation}: {type(error).__name__}: {error}".removeprefix(": ")
            return _refuse(environ, start, ApiError("InternalFailure", text, 500), service)

    def _pair(self, access_key: str, service: str) -> Pair:
        pair = self._credentials.find(access_key)
        if pair is None and service == "s3":
            text = "The AWS Access Key Id you provided does not exist in our records."
            raise ApiError("InvalidAccessKeyId", text, 403)
        if pair is None:
            text = "The security token included in the request is invalid."
            raise ApiError("UnrecognizedClientException", text, 403)
        return pair

    def _sagemaker(self, environ: dict[str, Any], start: Start, query: str, region: str) -> Iterable[bytes]:
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        operation = target.removeprefix(PREFIX)
        if query or operation == target:
            raise ApiError("UnknownOperationException", f"expected X-Amz-Target {PREFIX}OPERATION, got {target!r}")
        wanted = self._context.settings.region
        if region != wanted:
            text = f"Credential should be scoped to a valid region: this server is {wanted}, and the call was signed "
            raise ApiError("InvalidSignatureException", f"{text}for {region}", 403)
        try:
            given = read_json(body_of(environ) or b"{}")
        except ValueError as error:
            raise ApiError("SerializationException", f"expected JSON: {error}") from None
        validation.operation_model(operation)
        if operation not in OPERATIONS and not is_of_moto(operation):
            raise refused(operation)
        parameters = validation.check(operation, given)
        if operation not in OPERATIONS:
            return self._moto(environ, start, validation.SERVICE, controls=False)
        answer = OPERATIONS[operation](Request(operation, parameters, self._context))
        return _answer(start, 200, json.dumps(answer).encode(), JSON_TYPE)

    def _moto(self, environ: dict[str, Any], start: Start, service: str, controls: bool) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "").lstrip("/")
        if f"{path}/".startswith(f"{_OF_MOTO_ITSELF}/") and not controls:
            raise ApiError("AccessDenied", _NO_CONTROL, 403)
        if path.startswith(OWN[1:]):
            text = f"{OWN} is of the service {control.SERVICE}, and the call was signed for {service}"
            raise ApiError("AccessDenied", text, 403)
        found = simulated(body_of(environ)) if service == "iam" else None
        if found is not None:
            return _answer(start, 200, found, "text/xml")
        try:
            return self._context.moto(environ, start)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # it knows no such service, or no such operation of one
            text = f"muster serve has moto answer for {service}, which can't: {type(error).__name__}: {error}"
            self._context.say(text)
            raise ApiError("NotImplemented", text, 501) from None


def _signed(environ: dict[str, Any]) -> signatures.Signed:
    raw = environ.get("REQUEST_URI") or urllib.parse.quote(environ.get("PATH_INFO", "/"))
    if "://" in raw:
        raw = "/" + raw.split("://", 1)[1].partition("/")[2]
    headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if name in environ:
            headers[name.replace("_", "-").lower()] = environ[name]
    path, _, query = raw.partition("?")
    return signatures.Signed(environ["REQUEST_METHOD"], path, query, headers, lambda: body_of(environ))


def _answer(start: Start, status: int, body: bytes, kind: str, *more: tuple[str, str]) -> Iterable[bytes]:
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("x-amzn-RequestId", _request_id()), *more]
    start(f"{status} {_STATUS.get(status, 'Error')}", headers)
    return [body]


def _request_id() -> str:
    found = secrets.token_hex(16)
    return "-".join((found[:8], found[8:12], found[12:16], found[16:20], found[20:]))


def _refuse(environ: Mapping[str, Any], start: Start, error: ApiError, service: str) -> Iterable[bytes]:
    """The error as the service has it: S3's XML, query services' XML, JSON."""
    if service == "s3":
        body = f"<Error><Code>{error.code}</Code><Message>{escape(error.message)}</Message></Error>"
        return _answer(start, error.status, b"" if environ["REQUEST_METHOD"] == "HEAD" else body.encode(), "text/xml")
    if service != control.SERVICE and "HTTP_X_AMZ_TARGET" not in environ:
        code, text = escape(error.code), escape(error.message)
        body = f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error>"
        return _answer(start, error.status, f"{body}</ErrorResponse>".encode(), "text/xml")
    body = json.dumps({"__type": error.code, "message": error.message})
    return _answer(start, error.status, body.encode(), JSON_TYPE, ("x-amzn-ErrorType", error.code))
