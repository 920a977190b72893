"""Sockets with one deadline for everything they do, and how to open one.

A time-out per read is no bound: against a server that drips a byte at a time, smtplib with a one-second
time-out took half a minute. These sockets set the *remaining* time before each step, in the clear and in
TLS alike.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
from concurrent.futures import Future
from typing import Any, cast

from tasks.deadline import Deadline

_Address = tuple[int, int, int, str, Any]  # what getaddrinfo returns


class DeadlineSocket(socket.socket):
    """A TCP socket that does nothing after its deadline."""

    deadline = Deadline(0.0)  # over: nothing happens before one is set

    def arm(self) -> None:
        """Give the next step the time that is left; TimeoutError if there is none."""
        remaining = self.deadline.remaining()
        if remaining <= 0:  # settimeout(0) would mean "do not wait"
            raise TimeoutError("the deadline has passed")
        self.settimeout(remaining)

    def connect(self, address: Any, /) -> None:
        """Connect, within the deadline."""
        self.arm()
        super().connect(address)

    def recv(self, bufsize: int = 4096, flags: int = 0, /) -> bytes:
        """Receive, within the deadline."""
        self.arm()
        return super().recv(bufsize, flags)

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Send a part, within the deadline."""
        self.arm()
        return super().send(data, flags)

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Hand all of it to the kernel, within the deadline. OSError: the last byte was not taken."""
        self.arm()
        super().sendall(data, flags)

    def silent(self) -> bool:
        """Whether the peer has neither said anything nor gone away since we last read. Does not wait."""
        self.settimeout(0)
        try:
            super().recv(1)  # data, or nothing at the connection's end
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def reset(self) -> None:
        """Close it so that the kernel drops what it has not sent yet, instead of going on with it."""
        with contextlib.suppress(OSError):  # already closed
            self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


class DeadlineTLSSocket(DeadlineSocket, ssl.SSLSocket):
    """The same within TLS: `SSLSocket.sendall` loops around `send`; OpenSSL takes the time-out as a total."""


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Certificates and host names are checked, by the system's roots or by one file; TLS 1.2 at least."""
    context = ssl.create_default_context(cafile=ca_file)
    context.sslsocket_class = DeadlineTLSSocket
    return context


def start_tls(plain: DeadlineSocket, context: ssl.SSLContext, host: str) -> DeadlineTLSSocket:
    """Shake hands on a connected socket, within its deadline. The socket given is used up in any case."""
    deadline = plain.deadline
    plain.arm()  # wrap_socket takes the time-out over, and applies it to the handshake as a whole
    secure = cast(DeadlineTLSSocket, context.wrap_socket(plain, server_hostname=host))
    secure.deadline = deadline
    return secure


def open_socket(host: str, port: int, deadline: Deadline) -> DeadlineSocket:
    """Connect to the first of the host's addresses that answers. The deadline covers the name look-up too."""
    addresses = _RESOLVER.addresses(host, port, deadline)
    problem = OSError("the host has no address")
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        # An address that swallows packets must leave time for the ones after it.
        share = deadline.within(deadline.remaining() / (len(addresses) - tried))
        connection = DeadlineSocket(family, kind, protocol)
        connection.deadline = share
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection.connect(address)
        except OSError as error:
            connection.close()
            problem = error
        else:
            return connection
    raise problem


class _Resolver:
    """Name look-ups that can be waited for with a deadline.

    getaddrinfo can be neither interrupted nor bounded, so it runs in a thread of its own; whoever asks for
    the same name meanwhile waits for that thread instead of starting another, so a dead resolver costs one
    thread a host.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[tuple[int, str, int], Future[list[_Address]]] = {}

    def addresses(self, host: str, port: int, deadline: Deadline) -> list[_Address]:
        """The host's addresses; socket.gaierror or TimeoutError."""
        try:
            return _look_up(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # a name
        key = (os.getpid(), host, port)  # after a fork the parent's threads are not ours
        with self._lock:
            future = self._running.get(key)
            if future is None:
                future = self._running[key] = Future()
                threading.Thread(target=self._run, args=(key, future), name="resolve", daemon=True).start()
        try:
            return future.result(deadline.remaining())
        except TimeoutError:
            raise socket.gaierror(socket.EAI_AGAIN, "the name look-up took too long") from None

    def _run(self, key: tuple[int, str, int], future: Future[list[_Address]]) -> None:
        try:
            found = _look_up(key[1], key[2])
        except (OSError, UnicodeError) as error:
            future.set_exception(socket.gaierror(socket.EAI_NONAME, type(error).__name__))
        else:
            future.set_result(found)
        finally:
            with self._lock:
                self._running.pop(key, None)


def _look_up(host: str, port: int, flags: int = 0) -> list[_Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, kind, protocol, name, address) for family, kind, protocol, name, address in found]


_RESOLVER = _Resolver()
