"""A TCP proxy before PostgreSQL that cuts a connection at its COMMIT: before the server has it, or before its answer is."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

_IDLE = b"Z\x00\x00\x00\x05I"  # ReadyForQuery, outside a transaction


class LossyProxy:
    """`url` is the database's through the proxy. `lose(committed=…)` arms it for the next COMMIT."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        user = f"{parts.username}@" if parts.username else ""
        self.url = parts._replace(netloc=f"{user}127.0.0.1:{port}").geturl()
        self._committed: bool | None = None
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, *, committed: bool) -> None:
        """Lose the answer to the next COMMIT, which took effect or did not."""
        self._committed = committed

    def __enter__(self) -> LossyProxy:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                _Pair(self, client, socket.create_connection(self._target))

    def take(self) -> bool | None:
        """How this COMMIT is to be lost; None: not at all."""
        committed, self._committed = self._committed, None
        self.lost += committed is not None
        return committed


class _Pair:
    """One connection through the proxy."""

    def __init__(self, proxy: LossyProxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.swallow = threading.Event()
        for pump in (self._to_server, self._to_client):
            threading.Thread(target=pump, daemon=True).start()

    def _to_server(self) -> None:
        with suppress(OSError):
            while data := self.client.recv(65536):
                committed = self.proxy.take() if b"COMMIT" in data else None
                if committed is False:
                    break
                if committed:
                    self.swallow.set()
                self.server.sendall(data)
        self._close()

    def _to_client(self) -> None:
        answered = b""
        with suppress(OSError):
            while data := self.server.recv(65536):
                if not self.swallow.is_set():
                    self.client.sendall(data)
                    continue
                answered += data
                if _IDLE in answered:
                    break
        self._close()

    def _close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
