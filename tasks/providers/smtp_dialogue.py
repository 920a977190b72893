"""One connection to an SMTP server: opened, encrypted, logged in, and then any number of messages.

smtplib speaks the protocol. Added here: one deadline over everything, replies read in bounded memory and
believed only if complete and asked for, and errors that keep apart what smtplib makes one.
"""

from __future__ import annotations

import base64
import re
import smtplib
import ssl
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tasks.deadline import Deadline, now
from tasks.providers.base import Result
from tasks.providers.deadline_socket import DeadlineSocket, open_socket, start_tls
from tasks.providers.smtp_replies import Phase, Reply, config

Security = Literal["implicit", "starttls", "none"]

# Name look-up and TCP connect together. Ordinary connects take well under a second; what is lost here is
# lost from the send deadline.
CONNECT_SECONDS: Final = 5.0
# All lines of one reply. The longest in practice, EHLO's, is under a kilobyte.
_MAX_REPLY: Final = 32 * 1024

_LINE = re.compile(rb"([2-5][0-9]{2})(?:([ -])(.*))?", re.DOTALL)


class Lost(Exception):
    """The connection ended, or the deadline did, before a reply was complete."""

    def __init__(self, *, timed_out: bool) -> None:
        super().__init__("timed out" if timed_out else "connection lost")
        self.timed_out = timed_out


class Unreadable(Exception):
    """What came is not SMTP, or not an answer to anything."""


class Refused(Exception):
    """A complete reply other than the hoped-for one."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


class Unsuitable(Exception):
    """The server lacks something that we, or this mail, insist on."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.code)
        self.result = result


@dataclass(frozen=True, slots=True)
class Server:
    """Where to connect, how, and as whom."""

    host: str
    port: int
    security: Security
    tls: ssl.SSLContext | None = field(repr=False)  # None with security "none"
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Dialogue(smtplib.SMTP):
    """A connection. `phase` is that of the last command: whoever catches an error knows how far it got."""

    sock: DeadlineSocket | None

    def __init__(self, helo: str) -> None:
        super().__init__(local_hostname=helo)  # without a host it connects to nothing and looks no name up
        self.command_encoding = "utf-8"  # beyond ASCII only for addresses, once the server has SMTPUTF8
        self.phase = Phase.GREETING
        self.messages = 0
        self.idle_since = now()
        self.needs_reset = False
        self._received = bytearray()

    def until(self, deadline: Deadline) -> None:
        """From now on this deadline holds."""
        self._connected().deadline = deadline

    def open(self, server: Server, deadline: Deadline) -> None:
        """Connect, greet, encrypt, log in. OSError: connecting failed; SSLError: the handshake."""
        self.sock = open_socket(server.host, server.port, deadline.within(CONNECT_SECONDS))
        self.until(deadline)
        if server.security == "implicit":
            self._encrypt(server)
        self.expect({220}, *self.getreply())
        self._greet()
        if server.security == "starttls":
            self.phase = Phase.STARTTLS
            if not self.has_extn("starttls"):
                raise Unsuitable(config("starttls_not_offered"))
            self.expect({220}, *self.docmd("STARTTLS"))
            self._encrypt(server)
            self._greet()  # what was learnt in the clear does not count
        if server.user:
            self.phase = Phase.LOGIN
            self._log_in(server)

    def _encrypt(self, server: Server) -> None:
        assert server.tls is not None
        self._nothing_unasked()
        try:
            self.sock = start_tls(self._connected(), server.tls, server.host)
        except ssl.SSLError:
            raise  # says what about TLS was wrong
        except OSError as error:
            raise Lost(timed_out=isinstance(error, TimeoutError)) from error

    def _greet(self) -> None:
        self.phase = Phase.EHLO
        code, text = self.ehlo()
        if 500 <= code < 600:
            code, text = self.helo()  # a server of before 1995, or one with everything switched off
        self.expect({250}, code, text)

    def _log_in(self, server: Server) -> None:
        # Not smtplib's login(): it prefers CRAM-MD5, and fails on a password that is not ASCII.
        offered = self.esmtp_features.get("auth", "").upper().split()
        user, password = server.user.encode(), server.password.encode()
        if "PLAIN" in offered:
            self.expect({235}, *self.docmd("AUTH", "PLAIN " + _base64(b"\0" + user + b"\0" + password)))
        elif "LOGIN" in offered:
            self.expect({334}, *self.docmd("AUTH", "LOGIN"))
            self.expect({334}, *self.docmd(_base64(user)))
            self.expect({235}, *self.docmd(_base64(password)))
        else:
            raise Unsuitable(config("auth_not_offered"))

    def expect(self, wanted: set[int], code: int, text: bytes) -> None:
        """Go on if the reply is one of these."""
        if code not in wanted:
            raise Refused(Reply(code, text))

    def send(self, s: Any) -> None:
        """Hand it to the kernel, whole. Lost: its last byte was not taken and never will be."""
        self._nothing_unasked()
        try:
            self._connected().sendall(s.encode(self.command_encoding) if isinstance(s, str) else s)
        except OSError as error:
            raise Lost(timed_out=isinstance(error, TimeoutError)) from error

    def getreply(self) -> tuple[int, bytes]:
        """Read one whole reply; its code and its lines' texts."""
        limit = _MAX_REPLY
        first: int | None = None
        texts: list[bytes] = []
        while True:
            line = self._read_line(limit)
            limit -= len(line)
            parts = _LINE.fullmatch(line.rstrip(b"\r\n"))
            if parts is None:
                raise Unreadable("not an SMTP reply")
            code = int(parts[1])
            if first not in {None, code}:
                raise Unreadable("the lines of one reply disagree")
            first = code
            texts.append(parts[3] or b"")
            if parts[2] != b"-":
                return code, b"\n".join(texts)

    def _read_line(self, limit: int) -> bytes:
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched >= limit:
                raise Unreadable("the reply has no end")
            try:
                data = self._connected().recv(4096)
            except OSError as error:
                raise Lost(timed_out=isinstance(error, TimeoutError)) from error
            if not data:
                raise Lost(timed_out=False)
            self._received += data
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        if len(line) > limit:
            raise Unreadable("the reply has no end")
        return line

    def _nothing_unasked(self) -> None:
        """A reply that nobody asked for would be taken for the next one: the two sides are out of step."""
        if self._received:
            raise Unreadable("a reply that nobody asked for")

    def silent(self) -> bool:
        """Whether the server has said nothing unasked and is, as far as this side knows, still there."""
        return not self._received and self.sock is not None and self.sock.silent()

    def _connected(self) -> DeadlineSocket:
        if self.sock is None:
            raise Lost(timed_out=False)
        return self.sock

    def reset(self) -> None:
        """Cut the connection; whatever the kernel has not sent yet is dropped."""
        sock, self.sock = self.sock, None
        if sock is not None:
            sock.reset()

    def leave(self) -> None:
        """Take leave of a server that owes us nothing, without waiting for its farewell."""
        try:
            self.until(Deadline.after(0.1))
            self.putcmd("QUIT")
        except (Lost, Unreadable):
            pass
        self.close()
