"""The dev inbox: takes every mail over SMTP, shows it over HTTP, sends nothing on.

`python -m dev.inbox --smtp-port 1025 --http-port 8025`, or in a test `with Inbox() as inbox: …`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import sys
import threading
from types import TracebackType
from typing import Any, Self

from aiosmtpd.smtp import SMTP, Envelope, Session

from dev.inbox_http import InboxHTTPServer, make_server
from dev.inbox_store import Mail, Store
from dev.processes import LOOPBACK, DevError

MAX_MESSAGES = 1000
MAX_BYTES = 64 * 2**20  # bytes of all mails together
LARGEST_MAIL = 5 * 2**20  # bytes; more is answered 552
START_SECONDS = 10.0


class _Keep:
    """aiosmtpd's handler: every accepted mail goes into the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        content = envelope.content or b""
        self._store.add(envelope.rcpt_tos, content if isinstance(content, bytes) else content.encode())
        return "250 2.0.0 kept"


class Inbox:
    """SMTP and HTTP on free ports of `host` (or those asked for), in two threads. Memory is bounded."""

    def __init__(
        self,
        host: str = LOOPBACK,
        smtp_port: int = 0,
        http_port: int = 0,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.host, self.smtp_port, self.http_port = host, smtp_port, http_port
        self.store = Store(max_messages=max_messages, max_bytes=max_bytes)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._http: InboxHTTPServer | None = None
        self._threads: list[threading.Thread] = []

    @property
    def smtp_url(self) -> str:
        return f"smtp://{self.host}:{self.smtp_port}"

    @property
    def http_url(self) -> str:
        return f"http://{self.host}:{self.http_port}"

    def messages(self, to: str | None = None, delivery_id: str | None = None) -> list[Mail]:
        """What `GET /messages` answers, oldest first."""
        return [mail.full() for mail in self.store.find(to, delivery_id)]

    def wait_for(
        self, count: int = 1, *, to: str | None = None, delivery_id: str | None = None, seconds: float = 10
    ) -> list[Mail]:
        """Wait until `count` mails match, at most `seconds`; returns what matches then."""
        return [mail.full() for mail in self.store.wait(count, to, delivery_id, seconds)]

    def clear(self, to: str | None = None) -> int:
        return self.store.delete(to)

    def start(self) -> Self:
        """Listen; when this returns both ports answer. Raises `DevError` when one is taken."""
        smtp = self._listen(self.smtp_port, "SMTP")
        try:
            http = self._listen(self.http_port, "HTTP")
        except DevError:
            smtp.close()
            raise
        self.smtp_port, self.http_port = smtp.getsockname()[1], http.getsockname()[1]
        self._http = make_server(self.store, http)
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._loop.create_server(self._protocol, sock=smtp))
        self._threads = [
            threading.Thread(target=self._run_smtp, args=(self._loop,), name="inbox-smtp", daemon=True),
            threading.Thread(target=self._http.serve_forever, args=(0.1,), name="inbox-http", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Close both ports, end the threads, cut open SMTP sessions. The mails stay readable in-process."""
        if self._loop is None or self._http is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._http.shutdown()
        self._http.server_close()
        for thread in self._threads:
            thread.join(START_SECONDS)
        self._loop = self._http = None

    def _listen(self, port: int, what: str) -> socket.socket:
        listener = socket.socket(socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, port))
            listener.listen(128)
        except OSError as error:
            listener.close()
            raise DevError(
                f"the inbox cannot listen on {self.host}:{port} ({what}): {error.strerror}"
            ) from error
        return listener

    def _protocol(self) -> SMTP:
        return SMTP(
            _Keep(self.store),
            hostname="inbox.countersign.example",  # else aiosmtpd asks the resolver for a name
            ident="dev inbox",
            data_size_limit=LARGEST_MAIL,
            enable_SMTPUTF8=True,
            loop=self._loop,
        )

    @staticmethod
    def _run_smtp(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(lambda _loop, _context: None)  # a peer that vanishes is no news
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dev.inbox", description="Keep every mail, show it, send nothing on."
    )
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--smtp-port", type=int, default=1025)
    parser.add_argument("--http-port", type=int, default=8025)
    parser.add_argument("--max-messages", type=int, default=MAX_MESSAGES)
    given = parser.parse_args()
    stopped = threading.Event()

    def stop(*_: Any) -> None:
        stopped.set()

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    try:
        with Inbox(given.host, given.smtp_port, given.http_port, given.max_messages) as inbox:
            print(f"inbox at {inbox.http_url}, mail to {inbox.smtp_url}", flush=True)
            stopped.wait()
    except DevError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
