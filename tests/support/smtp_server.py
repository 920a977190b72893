"""An SMTP server that plays a part: for each phase of the dialogue it does what the test scripted, else what is right.

    with SmtpServer(rcpt=say("550 5.1.1 no such user")) as server: …
    with SmtpServer(end=[hang, ok]) as server: …            # the first time this, the second time that, then as usual

It listens on loopback unless told otherwise, and keeps what it was told, byte by byte, and in which order.
"""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import trustme

PHASES = ("greeting", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "end", "rset", "quit")
_TCP_CLOSE = 7  # Linux: no connection any more; after an ordinary end it would be CLOSE_WAIT
Action = Callable[["Connection"], None]


class Ended(Exception):
    """This connection is over."""


@dataclass
class Received:
    """One message whose final dot came."""

    mail_from: str
    rcpt_to: str
    wire: bytes  # as it came, dot-stuffed, without the final dot
    connection: int

    @property
    def data(self) -> bytes:
        """The message itself."""
        return re.sub(rb"(?m)^\.", b"", self.wire)


@dataclass
class Log:
    """What happened at the server, in order; shared by its connections' threads."""

    messages: list[Received] = field(default_factory=list)
    events: list[str] = field(
        default_factory=list
    )  # "1 RCPT TO:<…>": the connection's number and the command
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, event: str) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def keep(self, message: Received) -> None:
        with self.changed:
            self.messages.append(message)
            self.changed.notify_all()


# What a phase may be scripted to do.


def say(*lines: str, after: float = 0.0) -> Action:
    """Reply with these lines."""

    def act(connection: Connection) -> None:
        connection.pause(after)
        connection.write("".join(line + "\r\n" for line in lines).encode())

    return act


def raw(data: bytes) -> Action:
    """Send exactly this."""
    return lambda connection: connection.write(data)


def drip(line: str, every: float = 0.05) -> Action:
    """Send a line a byte at a time, then start again without ever ending it."""

    def act(connection: Connection) -> None:
        while True:
            for byte in line.encode():
                connection.write(bytes([byte]))
                connection.pause(every)

    return act


def endless(chunk: bytes) -> Action:
    """Send this for ever, as fast as it is taken."""

    def act(connection: Connection) -> None:
        while True:
            connection.write(chunk)

    return act


def hang(connection: Connection) -> None:
    """Say nothing until the client has gone."""
    connection.wait_for_end()


def hang_up(connection: Connection) -> None:
    """Close the connection in good order."""
    raise Ended


def reset(connection: Connection) -> None:
    """Close it with a TCP reset."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise Ended


def accept_silently(then: Action) -> Action:
    """For `end`: the message counts as taken, and the client is not told."""

    def act(connection: Connection) -> None:
        connection.take()
        then(connection)

    return act


def ok(connection: Connection) -> None:
    """What a well-behaved server does in this phase."""
    connection.usual()


def both(*actions: Action) -> Action:
    """One after the other."""

    def act(connection: Connection) -> None:
        for action in actions:
            action(connection)

    return act


class SmtpServer:
    """The server; a context manager. `extensions` are what EHLO lists, besides STARTTLS and AUTH where configured."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        implicit: bool = False,
        users: dict[str, str] | None = None,
        mechanisms: str = "PLAIN LOGIN",
        extensions: Sequence[str] = ("PIPELINING", "SIZE 1000000"),
        **script: Action | Sequence[Action],
    ) -> None:
        assert set(script) <= set(PHASES), script
        self.tls = tls
        self.implicit = implicit
        self.users = users
        self.mechanisms = mechanisms
        self.extensions = tuple(extensions)
        self.log = Log()
        self._script = {phase: [act] if callable(act) else list(act) for phase, act in script.items()}
        self._repeat = {phase for phase, act in script.items() if callable(act)}
        self._lock = threading.Lock()
        self._listener = socket.create_server((host, 0))
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.stopping = threading.Event()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def messages(self) -> list[Received]:
        return self.log.messages

    @property
    def commands(self) -> list[str]:
        """The commands' verbs in order, over all connections."""
        return [event.split()[1] for event in self.log.events]

    @property
    def connections(self) -> int:
        return sum(event.endswith(" connected") for event in self.log.events)

    def wait_until(self, what: Callable[[Log], bool], seconds: float = 5.0) -> None:
        """Wait for something to have happened here; a client may know its outcome first."""
        with self.log.changed:
            assert self.log.changed.wait_for(lambda: what(self.log), seconds), self.log.events

    def wait_until_ended(self, connection: int = 1) -> str:
        """How the client ended a connection: `closed` or `reset`."""
        ends = {f"{connection} {how}": how for how in ("closed", "reset")}
        self.wait_until(lambda log: any(event in ends for event in log.events))
        return next(ends[event] for event in self.log.events if event in ends)

    def action(self, phase: str) -> Action:
        """What to do now in this phase: the script's next, else the usual."""
        with self._lock:
            actions = self._script.get(phase, [])
            if not actions:
                return ok
            return actions[0] if phase in self._repeat else actions.pop(0)

    def __enter__(self) -> SmtpServer:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        # shutdown wakes accept(), which close() alone does not
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive(), "a thread of the scripted server does not end"

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            number += 1
            thread = threading.Thread(target=self._serve, args=(accepted, number), daemon=True)
            with self._lock:
                self._open.add(accepted)
                self._threads.append(thread)
            thread.start()

    def _serve(self, accepted: socket.socket, number: int) -> None:
        connection = Connection(self, accepted, number)
        self.log.note(f"{number} connected")
        try:
            connection.talk()
        except Ended:
            pass
        except ConnectionResetError:
            self.log.note(f"{number} reset")
        except OSError:  # a broken pipe, or this server is stopping
            self.log.note(f"{number} broken")
        finally:
            with self._lock:
                self._open.discard(accepted)
            connection.socket.close()
            accepted.close()
            self.log.note(f"{number} gone")


class Connection:
    """One client's connection, served by one thread."""

    def __init__(self, server: SmtpServer, accepted: socket.socket, number: int) -> None:
        self.server = server
        self.socket = accepted
        self.number = number
        self.secure = False
        self.usual: Callable[[], None] = lambda: None
        self._buffer = b""
        self._envelope = ["", ""]
        self._wire = b""
        self._said = b""  # last

    @property
    def recipient(self) -> str:
        """The last RCPT's address."""
        return self._envelope[1]

    @property
    def message(self) -> bytes:
        """The last message that came whole, accepted or not."""
        return self._wire

    def talk(self) -> None:
        """The whole dialogue."""
        if self.server.implicit:
            self._encrypt()
        self._do("greeting", "220 mail.example.com ESMTP")
        while True:
            line = self.read_line()
            command = line.decode("utf-8", "replace").rstrip("\r\n")
            verb = command.split(" ")[0].split(":")[0].upper()
            shown = "AUTH" if verb == "AUTH" else command
            self.server.log.note(f"{self.number} {shown}")
            getattr(self, f"_on_{verb.lower()}", self._on_unknown)(command)

    def _do(self, phase: str, *lines: str) -> None:
        self.usual = lambda: self.write("".join(line + "\r\n" for line in lines).encode())
        self.server.action(phase)(self)

    def _on_unknown(self, _: str) -> None:
        self.write(b"500 5.5.2 what?\r\n")

    def _on_ehlo(self, _: str) -> None:
        features = [*self.server.extensions, "ENHANCEDSTATUSCODES"]
        if self.server.tls and not self.secure:
            features.append("STARTTLS")
        if self.server.users is not None and (self.secure or not self.server.tls):
            features.append(f"AUTH {self.server.mechanisms}")
        lines = ["mail.example.com", *features]
        self._do("ehlo", *(f"250-{line}" for line in lines[:-1]), f"250 {lines[-1]}")

    def _on_helo(self, _: str) -> None:
        self.write(b"250 mail.example.com\r\n")

    def _on_starttls(self, _: str) -> None:
        def usual() -> None:
            self.write(b"220 2.0.0 go\r\n")
            self._encrypt()

        self.usual = usual
        self.server.action("starttls")(self)

    def _encrypt(self) -> None:
        assert self.server.tls is not None
        try:
            self.socket = self.server.tls.wrap_socket(self.socket, server_side=True)
        except OSError as error:
            self.server.log.note(f"{self.number} tls-failed")
            raise Ended from error
        self.secure = True
        self.server.log.note(f"{self.number} secure")

    def _on_auth(self, command: str) -> None:
        def usual() -> None:
            _, mechanism, *initial = command.split(" ")
            if mechanism == "PLAIN":
                user, password = base64.b64decode(initial[0]).decode().split("\0")[1:]
            else:
                user, password = self._ask("VXNlcm5hbWU6"), self._ask("UGFzc3dvcmQ6")
            known = (self.server.users or {}).get(user) == password
            self.write(b"235 2.7.0 welcome\r\n" if known else b"535 5.7.8 wrong\r\n")

        self.usual = usual
        self.server.action("auth")(self)

    def _ask(self, prompt: str) -> str:
        self.write(f"334 {prompt}\r\n".encode())
        return base64.b64decode(self.read_line()).decode()

    def _on_mail(self, command: str) -> None:
        self._envelope[0] = _address(command)
        self._do("mail", "250 2.1.0 sender ok")

    def _on_rcpt(self, command: str) -> None:
        self._envelope[1] = _address(command)
        self._do("rcpt", "250 2.1.5 recipient ok")

    def _on_data(self, _: str) -> None:
        self._said = b""
        self._do("data", "354 go on")
        if not self._said.startswith(b"354"):  # the script refused
            return
        self._wire = self._read_message()
        self.server.log.note(f"{self.number} dot")

        def usual() -> None:
            self.take()
            self.write(b"250 2.0.0 Ok: queued as 4XyZ12abcd\r\n")

        self.usual = usual
        self.server.action("end")(self)

    def take(self) -> None:
        """The message counts as accepted."""
        self.server.log.keep(Received(*self._envelope, self._wire, self.number))

    def _on_rset(self, _: str) -> None:
        self._do("rset", "250 2.0.0 forgotten")

    def _on_quit(self, _: str) -> None:
        self._do("quit", "221 2.0.0 bye")
        raise Ended

    def _read_message(self) -> bytes:
        while not (b"\r\n" + self._buffer).endswith(b"\r\n.\r\n"):
            if not self._buffer:
                self._fill()
                self.server.log.note(f"{self.number} bytes")
            else:
                self._fill()
        wire, self._buffer = self._buffer[: -len(b".\r\n")], b""
        return wire

    def read_line(self) -> bytes:
        while b"\n" not in self._buffer:
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _fill(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            # Within TLS, Python tells a reset as an ordinary end; the kernel's state of the connection does not.
            was_reset = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE
            self.server.log.note(f"{self.number} {'reset' if was_reset else 'closed'}")
            raise Ended
        self._buffer += data

    def write(self, data: bytes) -> None:
        self._said = data
        self.socket.sendall(data)

    def pause(self, seconds: float) -> None:
        if self.server.stopping.wait(seconds):
            raise Ended

    def wait_for_end(self) -> None:
        """Read and drop until the client has gone; how it went is noted."""
        while True:
            self._buffer = b""
            self._fill()


def _address(command: str) -> str:
    found = re.search(r"<(.*)>", command)
    return found[1] if found else ""


# Certificates


@dataclass(frozen=True)
class Certificates:
    """Contexts for servers, good and bad, and the file of the authority that signed the good ones."""

    ca_file: Path
    good: ssl.SSLContext
    wrong_host: ssl.SSLContext
    expired: ssl.SSLContext
    stranger: ssl.SSLContext  # signed by an authority that nobody trusts

    @classmethod
    @cache
    def make(cls, folder: Path) -> Certificates:
        """Made once for each folder."""
        authority = trustme.CA()
        ca_file = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(ca_file))
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)

        def context(certificate: trustme.LeafCert) -> ssl.SSLContext:
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(made)
            return made

        return cls(
            ca_file=ca_file,
            good=context(authority.issue_cert("127.0.0.1", "localhost")),
            wrong_host=context(authority.issue_cert("elsewhere.example")),
            expired=context(authority.issue_cert("127.0.0.1", not_after=long_ago)),
            stranger=context(trustme.CA().issue_cert("127.0.0.1")),
        )


def unused_port() -> int:
    """A loopback port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
