"""gunicorn's threaded worker, hardened against clients that stall (Procfile: `--worker-class app.server.Worker`)."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

_STALL_SECONDS = 10  # between two packets of one request; a person's bad connection recovers sooner
_LINGER_SECONDS = 1.0  # for a client to read an answer that comes before it has sent everything


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
        return super().handle_request(req, conn)


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
