"""The HTTP side of the dev inbox: JSON for programs, one page for people."""

from __future__ import annotations

import json
import re
import socket
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dev.inbox_store import Store

PAGE = Path(__file__).with_name("inbox_page.html")
# The page's own script and styles are inline; nothing else may load, from anywhere.
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
# A mail is a stranger's document: no script, no form, no request to anywhere, links open in a new tab.
MAIL_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'; form-action 'none'"
)
HEAD = re.compile(r"<head[^>]*>", re.IGNORECASE)
SILENT_SECONDS = 15  # a client that sends nothing is let go


class InboxHTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    store: Store

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in mid-answer is no news."""


def make_server(store: Store, listener: socket.socket) -> InboxHTTPServer:
    """A server on a socket that listens already."""
    server = InboxHTTPServer(listener.getsockname()[:2], _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.store = store
    return server


class _Handler(BaseHTTPRequestHandler):
    server: InboxHTTPServer
    protocol_version = "HTTP/1.1"
    server_version = "inbox"
    sys_version = ""
    timeout = SILENT_SECONDS

    def do_GET(self) -> None:
        path, query = self._asked()
        mail = re.fullmatch(r"/messages/(\d+)(/html)?", path)
        if path == "/":
            self._send(
                PAGE.read_bytes(), "text/html; charset=utf-8", {"Content-Security-Policy": PAGE_POLICY}
            )
        elif path == "/messages":
            found = self.server.store.find(query.get("to"), query.get("delivery_id"))
            self._send_json([each.brief() if query.get("brief") else each.full() for each in found])
        elif mail:
            self._send_mail(mail[1], as_html=bool(mail[2]))
        else:
            self._send_json({"detail": "no such page"}, HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        path, query = self._asked()
        if path == "/messages":
            self._send_json({"deleted": self.server.store.delete(query.get("to"))})
        else:
            self._send_json({"detail": "no such page"}, HTTPStatus.NOT_FOUND)

    def _asked(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        return parts.path.rstrip("/") or "/", {
            name: values[-1] for name, values in parse_qs(parts.query).items()
        }

    def _send_mail(self, identifier: str, *, as_html: bool) -> None:
        stored = self.server.store.get(identifier)
        if stored is None:
            self._send_json({"detail": "no such mail"}, HTTPStatus.NOT_FOUND)
        elif as_html:
            body = open_links_elsewhere(stored.full()["html"]).encode()
            self._send(body, "text/html; charset=utf-8", {"Content-Security-Policy": MAIL_POLICY})
        else:
            self._send_json(stored.full())

    def _send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(value).encode(), "application/json", {}, status)

    def _send(
        self, body: bytes, kind: str, headers: dict[str, str], status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        self.send_response(status)
        fixed = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}
        safe = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        for name, value in {**fixed, **safe, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Silent: the page asks every two seconds."""


def open_links_elsewhere(html: str) -> str:
    """Links would load inside the frame, where most sites refuse to be shown."""
    base = '<base target="_blank">'
    found = HEAD.search(html)
    return html[: found.end()] + base + html[found.end() :] if found else base + html
