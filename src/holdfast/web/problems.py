"""Which status an error has over HTTP, and how it is answered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec
from litestar.types import Scope

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.model.problem import MEDIA_TYPE, PREFIX, Problem, facts_of, problem_type
from holdfast.runtime.events import Events

AnyRequest = Request[Any, Any, Any]

# The status of an error is that of its nearest ancestor here.
STATUS: Mapping[type[BaseException], int] = {
    HoldfastError: 500,
    errors.InputInvalid: 400,
    errors.UnknownKind: 400,
    errors.LineInvalid: 400,
    errors.PayloadTooLarge: 413,
    errors.TokenInvalid: 401,
    errors.AccessDenied: 403,
    errors.OriginRefused: 403,
    errors.JobNotFound: 404,
    errors.QueueNotFound: 404,
    errors.WorkerNotFound: 404,
    errors.ScheduleNotFound: 404,
    errors.TokenNotFound: 404,
    errors.StepNotFound: 404,
    errors.BlobNotFound: 404,
    errors.ArtifactNotFound: 404,
    errors.LogNotFound: 404,
    errors.DeliveryNotFound: 404,
    errors.EndpointNotFound: 404,
    errors.EndpointTaken: 409,
    errors.DuplicateJob: 409,
    errors.StateConflict: 409,
    errors.WorkerEnded: 409,
    errors.RunEnded: 409,
    errors.NotARun: 409,
    errors.LeaseLost: 409,
    errors.RunnerHolding: 409,
    errors.AssignmentForeign: 403,
    errors.SpecInvalid: 409,
    errors.ArtifactDiffers: 409,
    errors.ArtifactsTooMany: 413,
    errors.LogsIncomplete: 409,
    errors.RunnerSuperseded: 401,
    errors.ProtocolUnsupported: 426,
    errors.LogRefused: 409,
    errors.LogOffsetWrong: 416,
    errors.TokenTaken: 409,
    errors.RequestKeyReused: 422,
    errors.RequestsTooMany: 429,
    errors.DatabaseUnavailable: 503,
    errors.DatabaseRefused: 503,
    errors.SchemaMismatch: 503,
}
# What any route with a right may come to.
EVERYWHERE = (
    errors.InputInvalid,
    errors.TokenInvalid,
    errors.AccessDenied,
    errors.RequestsTooMany,
    errors.DatabaseUnavailable,
)
# Errors of HTTP itself, by status.
_PROTOCOL = {
    400: ("request-malformed", "the request is wrong"),
    404: ("route-not-found", "there is nothing at this address: see /schema"),
    405: ("method-not-allowed", "this address does not take this method: see /schema"),
    413: ("body-too-large", "the body of the request is larger than this route takes"),
}
_OTHER = ("request-refused", "the request was refused")
# All that the gate does before it knows a caller is to ask the database.
_UNUSABLE = "the database cannot be reached, or not be used, as the log of the service describes"


def status_of(error: type[BaseException]) -> int:
    """Return the status under which an error is answered."""
    return next(STATUS[one] for one in error.__mro__ if one in STATUS)


def documented(raises: Iterable[type[BaseException]], *, takes_body: bool = False) -> dict[int, ResponseSpec]:
    """Return how the schema documents that a route may answer with these errors.

    One that *takes_body* may refuse it for its size before anything else is looked at.
    """
    by_status: dict[int, list[str]] = (
        {413: ["The body is larger than this route takes."]} if takes_body else {}
    )
    for error in raises:
        by_status.setdefault(status_of(error), []).append((error.__doc__ or "").strip().splitlines()[0])
    return {
        status: ResponseSpec(
            Problem, description=" ".join(sentences), media_type=MEDIA_TYPE, generate_examples=False
        )
        for status, sentences in sorted(by_status.items())
    }


def answer_error(request: AnyRequest, error: HoldfastError) -> Response[Problem]:
    """Answer an error of Holdfast."""
    return _response(*problem_of(error, request.app.state.events, request.scope))


def problem_of(error: HoldfastError, events: Events, scope: Scope) -> tuple[Problem, dict[str, str]]:
    """Return the problem that an error is answered with, and the headers that go with it."""
    status = status_of(type(error))
    if status >= 500:
        events.emit("request.failed", path=scope["path"], error=error)
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="holdfast"'
    if status in (429, 503):
        headers["Retry-After"] = str(math.ceil(getattr(error, "retry_after", 1.0)))
    if isinstance(error, errors.LogOffsetWrong):
        headers["Holdfast-Offset"] = str(error.size)
    detail, facts = str(error), facts_of(error)
    if status >= 500 and scope.get("auth") is None:
        # Whoever is asked for a token has not shown yet that he may know where the database is, and as whom.
        detail, facts = _UNUSABLE, {}
    problem = Problem(
        type=problem_type(type(error)),
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        facts=facts,
    )
    return problem, headers


def answer_http_error(_: AnyRequest, error: HTTPException) -> Response[Problem]:
    """Answer what HTTP itself refuses: no such route, a wrong parameter, a body that is too large."""
    status = error.status_code
    name, sentence = _PROTOCOL.get(status, _OTHER)
    problem = Problem(
        type=f"{PREFIX}{name}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_told(error, sentence),
    )
    return _response(problem, dict(error.headers or {}))


def answer_fault(request: AnyRequest, error: Exception) -> Response[Problem]:
    """Answer a fault that nobody foresaw."""
    return _response(fault_problem(error, request.app.state.events, request.scope["path"]), {})


def fault_problem(error: Exception, events: Events, path: str) -> Problem:
    """Return what a fault is answered with: the log gets all of it, the caller nothing."""
    events.emit("request.failed", path=path, error=error)
    return Problem(
        type=f"{PREFIX}fault",
        title="Internal Server Error",
        status=500,
        detail="the service has met a fault of its own, which its log describes",
    )


def _told(error: HTTPException, sentence: str) -> str:
    extra: Any = error.extra
    if not isinstance(extra, list) or not extra:
        return sentence
    if extra[0].get("key") == "data":
        return f"{sentence}: it takes a body of JSON"
    told = "; ".join(f"{one.get('key', 'body')}: {one['message']}" for one in extra)
    return f"{sentence}: {told}"


def _response(problem: Problem, headers: dict[str, str]) -> Response[Problem]:
    return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)
