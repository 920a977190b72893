"""Errors as the API tells them: one table from the domain's exceptions to RFC 9457 problems.

Every error answer of the service is made here, those of routing and of the unexpected included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from flask import Flask, Response, g, json
from werkzeug.exceptions import HTTPException

from db import errors as domain
from db.ids import public
from db.logs import get_logger

_log = get_logger(__name__)
MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 50  # of a body with thousands of unknown fields
_RETRY_SECONDS = "2"
_BACKLOG_SECONDS = "30"  # a sweep or two


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field. `pointer` is a JSON Pointer into the body, or `?` and the name of a query parameter."""

    pointer: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Problem:
    """An error answer. `code` is stable; `detail` says what to do; `more` are members of their own."""

    status: int
    code: str
    title: str
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[FieldError] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


class RequestError(Exception):
    """Root of what is wrong with a request before the domain sees it."""


class MalformedJson(RequestError):
    """The body is no JSON document of the kind that is safe to read."""


class MalformedBody(RequestError):
    """The body did not arrive whole: cut off, stalled, or in broken or unknown framing."""


class UnsupportedMediaType(RequestError):
    """The body is not declared as plain UTF-8 JSON."""


class NotAcceptable(RequestError):
    """The caller takes none of the forms there are."""


class InvalidIdempotencyKey(RequestError):
    """The Idempotency-Key header is malformed or given twice."""


class Unauthorized(RequestError):
    """No API key, or none that works."""


class NeedsTestKey(RequestError):
    """A live client asks for what only test clients may do."""


class InvalidRequest(RequestError):
    """The body is JSON but not a valid request; `errors` name the fields."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors[:MOST_ERRORS])
        super().__init__(", ".join(f"{error.pointer} {error.code}" for error in self.errors))


_UNAVAILABLE = Problem(
    503,
    "database_unavailable",
    "The database is not available",
    "Nothing is lost. Repeat the same request with the same Idempotency-Key in a few seconds.",
    {"Retry-After": _RETRY_SECONDS},
)

_UNAUTHORIZED = Problem(
    401,
    "unauthorized",
    "An API key is needed",
    "Send a valid key as `Authorization: Bearer cs_live_…` (or `cs_test_…`).",
    {"WWW-Authenticate": 'Bearer realm="countersign"'},
)

# The nearest class up an exception's ancestry counts.
PROBLEMS: Mapping[type[Exception], Problem] = MappingProxyType(
    {
        MalformedJson: Problem(
            400,
            "malformed_json",
            "The body is not valid JSON",
            "Send one JSON object in UTF-8, without duplicate keys, NaN or Infinity.",
        ),
        MalformedBody: Problem(
            400,
            "malformed_body",
            "The body did not arrive whole",
            "Send as many bytes as Content-Length says, or well-formed chunks without another Transfer-Encoding.",
        ),
        InvalidIdempotencyKey: Problem(
            400,
            "invalid_idempotency_key",
            "The Idempotency-Key header is not valid",
            "Send the header once, with 1 to 255 visible ASCII characters (no comma unless quoted), or leave it out.",
        ),
        Unauthorized: _UNAUTHORIZED,
        domain.InvalidKey: _UNAUTHORIZED,
        domain.ClientDisabled: Problem(
            403,
            "client_disabled",
            "This client is disabled",
            "Ask the operator of this service to enable it.",
        ),
        NeedsTestKey: Problem(
            403,
            "test_key_required",
            "Only with a test key",
            "Use a `cs_test_…` key: what goes to real people is theirs alone.",
        ),
        domain.NotFound: Problem(
            404,
            "not_found",
            "There is no such thing",
            "Check the id; ids of other clients are not found either.",
        ),
        NotAcceptable: Problem(
            406,
            "not_acceptable",
            "No acceptable form",
            "Accept application/json, or for receipts text/plain as well.",
        ),
        domain.IdempotencyKeyConflict: Problem(
            409,
            "idempotency_key_conflict",
            "The Idempotency-Key was used with another body",
            "Use a new key for a new request; repeat a request with exactly the same body.",
        ),
        domain.AlreadyVerified: Problem(
            409,
            "already_verified",
            "The account is active with this address",
            "Nothing to do. To change the address use the purpose `email_change`.",
        ),
        domain.NotHandedOver: Problem(
            409,
            "mail_not_sent",
            "No mail with this token has left yet",
            "Ask again after Retry-After; without that header none will leave: the verification's receipt says why.",
        ),
        domain.TokenAlreadyUsed: Problem(
            409,
            "verification_already_used",
            "This was confirmed before",
            "Nothing to do: the address is confirmed.",
        ),
        domain.NotCancellable: Problem(
            409,
            "not_cancellable",
            "The verification was confirmed",
            "There is nothing left to cancel: its token was used. Undo on your side what the confirmation led to.",
        ),
        domain.TokenExpired: Problem(
            410,
            "verification_expired",
            "This token can no longer be used",
            "If `newer_exists`, use the newest mail; otherwise request a new verification.",
        ),
        UnsupportedMediaType: Problem(
            415,
            "unsupported_media_type",
            "The body is not declared as JSON",
            "Send `Content-Type: application/json`, in UTF-8 and without Content-Encoding.",
        ),
        InvalidRequest: Problem(
            422, "invalid_request", "The request is not valid", "Correct the fields that `errors` names."
        ),
        domain.TokenInvalid: Problem(
            422,
            "verification_invalid",
            "There is no such token",
            "Check it against the mail: 16 letters and digits in groups of four.",
        ),
        domain.ResendCooldown: Problem(
            429,
            "resend_cooldown",
            "A mail to this address was requested a moment ago",
            "Ask the person to look for that mail; after Retry-After another may be requested.",
        ),
        domain.ClientBacklog: Problem(
            429,
            "client_backlog",
            "Too many deliveries are unfinished",
            "Wait until some are delivered; if that takes long, tell the operator of this service.",
            {"Retry-After": _BACKLOG_SECONDS},
        ),
        domain.RateLimited: Problem(
            429,
            "rate_limited",
            "Too many requests",
            "`limit` names the hourly limit that is used up. Wait for Retry-After; nothing was changed.",
        ),
        domain.DatabaseUnavailable: _UNAVAILABLE,
    }
)

_UNEXPECTED = Problem(
    500,
    "internal_error",
    "Something went wrong here",
    "It has been recorded. Repeating the same request with the same Idempotency-Key is safe.",
)

# What routing and the HTTP layer raise, by status.
_HTTP = MappingProxyType(
    {
        400: Problem(400, "bad_request", "The request cannot be read", "Check its syntax."),
        404: Problem(404, "not_found", "There is no such thing", "Check the path."),
        405: Problem(405, "method_not_allowed", "Not with this method", "Use a method that `Allow` names."),
        413: Problem(413, "body_too_large", "The body is too large", "Send at most 16 KiB."),
        415: PROBLEMS[UnsupportedMediaType],
        431: Problem(431, "headers_too_large", "The headers are too large", "Send fewer or shorter headers."),
    }
)


def problem_of(error: Exception) -> Problem:
    """The problem that tells `error`; the unexpected tells nothing of itself."""
    if isinstance(error, HTTPException):
        return _of_http(error)
    known = next((PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS), None)
    if known is None:
        return _UNEXPECTED
    match error:
        case InvalidRequest():
            return replace(known, errors=error.errors)
        case domain.TokenExpired():
            return replace(known, more={"reason": error.reason, "newer_exists": error.newer_exists})
        case domain.ResendCooldown():
            more = {"verification_id": public("ver", error.verification_id)}
            return replace(known, more=more, headers={"Retry-After": str(error.retry_after)})
        case domain.RateLimited():
            return replace(
                known,
                detail=f"The hourly limit `{error.limit}` is used up. Wait for Retry-After; nothing was changed.",
                more={"limit": error.limit},
                headers={"Retry-After": str(error.retry_after)},
            )
        case domain.NotHandedOver() if error.retry_after is not None:
            return replace(known, headers={"Retry-After": str(error.retry_after)})
    return known


def by_code() -> dict[str, Problem]:
    """Every problem there is. Where two share a code, the domain's comes before that of routing."""
    found: dict[str, Problem] = {}
    for problem in (*PROBLEMS.values(), *_HTTP.values(), _UNEXPECTED):
        found.setdefault(problem.code, problem)
    return found


def members(problem: Problem, request_id: str | None) -> dict[str, Any]:
    """What the body of every problem has, and what `more` adds."""
    return {
        "type": f"urn:countersign:problem:{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        "request_id": request_id,
        **problem.more,
    }


def respond(problem: Problem) -> Response:
    """A problem as an HTTP answer."""
    body = members(problem, g.get("request_id"))
    if problem.errors:
        body["errors"] = [
            {"pointer": error.pointer, "code": error.code, "detail": error.detail} for error in problem.errors
        ]
    return Response(
        json.dumps(body), status=problem.status, mimetype=MEDIA_TYPE, headers=dict(problem.headers)
    )


def is_unexpected(problem: Problem) -> bool:
    """Whether no table knew the error."""
    return problem is _UNEXPECTED


def log_unexpected(error: Exception) -> None:
    """Record what no table knows."""
    _log.error("unexpected_error", alert=True, exc_info=error)


def register(app: Flask) -> None:
    """Answer every error of `app` with a problem."""
    app.register_error_handler(Exception, _handle)


def _handle(error: Exception) -> Response:
    problem = problem_of(error)
    if is_unexpected(problem):
        log_unexpected(error)
    return respond(problem)


def _of_http(error: HTTPException) -> Problem:
    status = error.code or 500
    if status >= 500:
        return _UNEXPECTED
    known = _HTTP.get(status) or Problem(status, "bad_request", error.name, "Check the request.")
    allow = getattr(error, "valid_methods", None)
    return replace(known, headers={"Allow": ", ".join(sorted(allow))}) if allow else known
