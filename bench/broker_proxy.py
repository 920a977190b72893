"""A TCP proxy before Redis whose manners can be changed: it passes on, refuses, stays silent, or swallows connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_LOOPBACK = "127.0.0.1"


class BrokerProxy:
    """Listens on `port` and passes on to `target`, until told to be `stopped`, `frozen` or `black_holed`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._sockets: list[socket.socket] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self._listener = socket.create_server((_LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = self._serve()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Connections are cut and refused: Redis is gone."""
        self._stop_listening()
        self._cut()
        yield
        self._listen()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Connections are taken and stay open, and nothing is answered: Redis hangs."""
        self._flowing.clear()
        yield
        self._cut()
        self._flowing.set()

    @contextmanager
    def black_holed(self) -> Iterator[None]:
        """Packets go nowhere: open connections are silent and new ones are not even refused (the backlog is full)."""
        self._flowing.clear()
        self._stop_listening()
        with socket.socket() as hole, _crowd() as crowd:
            hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            hole.bind((_LOOPBACK, self.port))
            hole.listen(0)
            crowd.fill(self.port)
            yield
        self._cut()
        self._flowing.set()
        self._listen()

    def _listen(self) -> None:
        self._listener = socket.create_server((_LOOPBACK, self.port))
        self._accepting = self._serve()

    def _stop_listening(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()

    def _serve(self) -> threading.Thread:
        thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        thread.start()
        return thread

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((_LOOPBACK, self._target))
                self._sockets += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                sink.sendall(data)

    def _cut(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets.clear()


class _crowd:
    """Connections that fill a listener's backlog."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def fill(self, port: int) -> None:
        for _ in range(8):
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex((_LOOPBACK, port))
            self._sockets.append(waiting)

    def __enter__(self) -> _crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            each.close()
