"""gunicorn's threaded worker, hardened against clients that stall (Procfile: `--worker-class app.server.Worker`)."""

from __future__ import annotations

import json
import socket
import struct
import time
from contextlib import suppress
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from gunicorn.http import errors as broken
from gunicorn.workers.gthread import ThreadWorker
from werkzeug import exceptions

from app import errors
from app.body import LARGEST
from db import ids
from db.logs import get_logger

_log = get_logger("access")

_STALL_SECONDS = 10  # between two packets of one request; a person's bad connection recovers sooner
_SEND_SECONDS = 1.0  # for an answer of a few hundred bytes
_LINGER_SECONDS = 1.0  # for a client to read an answer that comes before it has sent everything

# What gunicorn cannot read as HTTP, and what we say to it; whatever else is not HTTP is a 400.
_REFUSALS = MappingProxyType(
    {
        broken.LimitRequestLine: exceptions.RequestURITooLarge,
        broken.LimitRequestHeaders: exceptions.RequestHeaderFieldsTooLarge,
        broken.ExpectationFailed: exceptions.ExpectationFailed,
    }
)
# Of the same family, and no fault of a client's.
_OUR_FAULTS = (broken.ConfigurationProblem, broken.InvalidResponseHeader, broken.InvalidResponseHeaderName)


class Worker(ThreadWorker):  # type: ignore[misc]
    """As gthread, but no client can hold a thread by silence, nor the one loop that accepts for all."""

    def init_process(self) -> None:
        for listener in self.sockets:
            # Connections inherit it. gunicorn itself reads heads and bodies without any time-out.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _STALL_SECONDS, 0))
        super().init_process()

    def handle(self, conn: Any) -> Any:
        """Serve one request, and part from the client here: gunicorn would wait for its goodbye in the accepting loop."""
        kept = super().handle(conn)
        if not kept:
            _part_from(conn.sock)
        return kept

    def handle_request(self, req: Any, conn: Any) -> Any:
        """gunicorn joins repeated headers by commas, so that `"a` and `b"` would be the good Idempotency-Key `"a,b"`.

        A part that no key can have makes `app.idempotency` refuse the whole.
        """
        if sum(name == "IDEMPOTENCY-KEY" for name, _ in req.headers) > 1:
            req.headers.append(("IDEMPOTENCY-KEY", "(repeated)"))
        if _is_too_large(req):
            # It is refused unread. gunicorn skips only so much of it and then closes, without having said so.
            req.should_close = lambda: True
        return super().handle_request(req, conn)

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        """The request was answered without its body, which turns out broken now: a second answer to it would be taken for
        that to the next request.
        """
        try:
            return bool(super()._keepalive_after(conn, keepalive))
        except broken.ParseException:
            return False

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """What is no HTTP gets a problem and a line in the log like any other request: gunicorn's page and its log would
        quote it, and a token, key or address may be in it.
        """
        if isinstance(exc, broken.ParseException) and not isinstance(exc, _OUR_FAULTS):
            _refuse(client, exc)
        else:
            super().handle_error(req, client, addr, exc)


def _is_too_large(req: Any) -> bool:
    lengths = [value for name, value in req.headers if name == "CONTENT-LENGTH"]
    return any(value.isdecimal() and int(value[:20]) > LARGEST for value in lengths)


def _refuse(connection: socket.socket, error: broken.ParseException) -> None:
    request_id = f"req_{ids.new_id().hex}"
    problem = errors.problem_of(_REFUSALS.get(type(error), exceptions.BadRequest)())
    _log.info("request_refused", status=problem.status, reason=type(error).__name__, request_id=request_id)
    body = json.dumps(errors.members(problem, request_id)).encode()
    head = (
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\nContent-Type: {errors.MEDIA_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nX-Request-ID: {request_id}\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    with suppress(OSError):  # the client may have gone
        connection.settimeout(_SEND_SECONDS)
        connection.sendall(head.encode() + body)


def _part_from(connection: socket.socket) -> None:
    """Say that no more comes, and read until the client does: closing on unread bytes would cut the answer off."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        end = time.monotonic() + _LINGER_SECONDS
        while (remaining := end - time.monotonic()) > 0:
            connection.settimeout(remaining)
            if not connection.recv(4096):
                break
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RD)  # what gunicorn reads now is the end
