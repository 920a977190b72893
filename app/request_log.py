"""One id and one log line a request, of words that are ours: the rule that matched and ids, never what the caller wrote."""

from __future__ import annotations

import re
import time
from types import MappingProxyType

import structlog
from flask import Flask, Response, g, request

from db import ids, tokens
from db.logs import get_logger, mask

_log = get_logger("access")
_HEADER = "X-Request-ID"
_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TRACE_ID = re.compile(r"[0-9a-f]+")  # one in 60 000 tokens is that, typed without capitals and dashes
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
# What a rule may take from the path, by the kind of its public id.
_IDS = MappingProxyType({"verification_id": "ver", "delivery_id": "dlv"})


def register(app: Flask) -> None:
    """Give each request its id, which is also the correlation id, and log its end."""
    app.before_request(_begin)
    app.after_request(_end)
    app.teardown_request(_forget)


def request_id(given: str | None) -> str:
    """The caller's id if it is well-formed and looks like nothing that must not be logged, else a new one."""
    if given and _WELL_FORMED.fullmatch(given) and mask(given) == given and not _may_be_token(given):
        return given
    return f"req_{ids.new_id().hex}"


def _may_be_token(text: str) -> bool:
    """Whether `/verify` would take it for one, and tracing would not have made it."""
    return tokens.normalise(text) is not None and not _TRACE_ID.fullmatch(text)


def _begin() -> None:
    g.began = time.perf_counter()
    g.request_id = request_id(request.headers.get(_HEADER))
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(correlation_id=g.request_id)


def _end(response: Response) -> Response:
    response.headers[_HEADER] = g.request_id
    _log.info(
        "request",
        method=request.method if request.method in _METHODS else "other",
        path=request.url_rule.rule if request.url_rule else "unmatched",
        status=response.status_code,
        milliseconds=round((time.perf_counter() - g.began) * 1000, 1),
        request_id=g.request_id,
        client_id=g.get("client_id"),
        **_ids_of_path(),
    )
    return response


def _ids_of_path() -> dict[str, str]:
    """The ids in the path that are well-formed, by their names."""
    given = request.view_args or {}
    return {name: str(given[name]) for name, kind in _IDS.items() if ids.parse(kind, str(given.get(name)))}


def _forget(_error: BaseException | None) -> None:
    """The thread serves others next."""
    structlog.contextvars.clear_contextvars()
