"""One id and one log line a request. No query string, no address, no token."""

from __future__ import annotations

import re
import time

import structlog
from flask import Flask, Response, g, request

from db.ids import new_id
from db.logs import get_logger, mask

_log = get_logger("access")
_HEADER = "X-Request-ID"
_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def register(app: Flask) -> None:
    """Give each request its id, which is also the correlation id, and log its end."""
    app.before_request(_begin)
    app.after_request(_end)
    app.teardown_request(_forget)


def request_id(given: str | None) -> str:
    """The caller's id if it is well-formed and looks like nothing that must not be logged, else a new one."""
    if given and _WELL_FORMED.fullmatch(given) and mask(given) == given:
        return given
    return f"req_{new_id().hex}"


def _begin() -> None:
    g.began = time.perf_counter()
    g.request_id = request_id(request.headers.get(_HEADER))
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(correlation_id=g.request_id)


def _end(response: Response) -> Response:
    response.headers[_HEADER] = g.request_id
    _log.info(
        "request",
        method=request.method,
        path=request.path,
        status=response.status_code,
        milliseconds=round((time.perf_counter() - g.began) * 1000, 1),
        request_id=g.request_id,
        client_id=g.get("client_id"),
    )
    return response


def _forget(_error: BaseException | None) -> None:
    """The thread serves others next."""
    structlog.contextvars.clear_contextvars()
