"""A way to an HTTP service on which an answer can be lost: the service did what it was asked, and nobody hears of it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

import httpx

_HOP = {"connection", "content-length", "date", "host", "server", "transfer-encoding"}


class LossyWay:
    """`url` leads to the service at `target`."""

    def __init__(self, target: str) -> None:
        self.is_armed = threading.Event()
        way = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                way._pass_on(self, target)

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def lose_next_answer(self) -> None:
        """Hang up instead of answering, once the service has answered."""
        self.is_armed.set()

    def _pass_on(self, asked: BaseHTTPRequestHandler, target: str) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length", 0)))
        headers = [(name, value) for name, value in asked.headers.items() if name.lower() not in _HOP]
        answer = httpx.request(
            asked.command, f"{target}{asked.path}", headers=headers, content=body, timeout=20
        )
        if self.is_armed.is_set():
            self.is_armed.clear()
            asked.close_connection = True
            return
        asked.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in {*_HOP, "content-encoding"}:
                asked.send_header(name, value)
        asked.send_header("Content-Length", str(len(answer.content)))
        asked.end_headers()
        asked.wfile.write(answer.content)

    def __enter__(self) -> LossyWay:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
