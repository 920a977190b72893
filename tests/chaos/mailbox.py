"""Mail servers with moods, and the one place that knows which mails arrived, when, and what their senders were told."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes

from tests.support import smtp_server as smtp
from tests.support.smtp_server import Action, Connection, Received, SmtpServer

_TOKEN = re.compile(rb"/verify#([0-9A-Z-]{16,19})")
_DRIP_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Mail:
    """A message that a server took whole. `at` in seconds since 1970, by this machine's clock.

    `said` is how the sender was answered: `ok`, `nothing` or `refused`; `kept` is False where the server lied.
    """

    delivery_id: str
    token: str
    at: float
    server: str
    said: str = "ok"
    kept: bool = True


@dataclass
class Mailbox:
    """All mails of all servers, in the order of their arrival. `listeners` are told of each that was kept."""

    mails: list[Mail] = field(default_factory=list)
    listeners: list[Callable[[Mail], None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, mail: Mail) -> None:
        with self._lock:
            self.mails.append(mail)
        if mail.kept:
            for listener in self.listeners:
                listener(mail)


class MoodyServer(SmtpServer):
    """An SMTP server that does what its mood says. `calm` is a good server."""

    def __init__(self, name: str, mailbox: Mailbox, host: str = "127.0.0.1") -> None:
        super().__init__(host=host)
        self.name, self.mailbox = name, mailbox
        self.mood = "calm"
        self._tries: dict[str, int] = defaultdict(int)

    def action(self, phase: str) -> Action:
        """What to do in this phase of the dialogue, now."""
        return _MOODS.get((self.mood, phase), _keep if phase == "end" else smtp.ok)

    def greylists(self, recipient: str) -> bool:
        """Whether this is the first time that it hears of a recipient."""
        self._tries[recipient] += 1
        return self._tries[recipient] == 1

    def note(self, connection: Connection, said: str, *, kept: bool = True) -> None:
        """Write down the message that came; before the answer, so that nobody knows of it earlier."""
        mail = read(connection.message, self.name, said, kept=kept)
        self.log.events.clear()
        self.mailbox.add(mail)


def read(wire: bytes, server: str, said: str, *, kept: bool = True) -> Mail:
    """What matters of a message, now arrived."""
    at = time.time()
    message = message_from_bytes(Received("", "", wire, 0).data)
    text = next(part for part in message.walk() if part.get_content_type() == "text/plain")
    token = _TOKEN.search(bytes(text.get_payload(decode=True)))
    assert token, "every mail of ours has a token"
    return Mail(message["X-Countersign-Delivery"], token[1].decode(), at, server, said, kept)


def _server(connection: Connection) -> MoodyServer:
    assert isinstance(connection.server, MoodyServer)
    return connection.server


def _keep(connection: Connection) -> None:
    _server(connection).note(connection, "ok")
    connection.write(b"250 2.0.0 Ok: queued\r\n")


def _lie(connection: Connection) -> None:
    """Say yes and throw it away."""
    _server(connection).note(connection, "ok", kept=False)
    connection.write(b"250 2.0.0 Ok: queued\r\n")


def _store_then_refuse(connection: Connection) -> None:
    """Keep it and say no."""
    _server(connection).note(connection, "refused")
    connection.write(b"451 4.3.0 try again\r\n")


def _silently(then: Action) -> Action:
    def act(connection: Connection) -> None:
        _server(connection).note(connection, "nothing")
        then(connection)

    return act


def _greylist(connection: Connection) -> None:
    if _server(connection).greylists(connection.recipient):
        connection.write(b"451 4.7.1 greylisted, try again\r\n")
    else:
        connection.usual()


def _slowly(connection: Connection) -> None:
    connection.pause(1.0)
    _keep(connection)


_NOT_NOW = smtp.say("451 4.3.2 not now")
# (mood, phase) -> what the server does there; elsewhere it behaves. A mail server that is `away` refuses at its link.
_MOODS: dict[tuple[str, str], Action] = {
    ("accept_then_hang", "end"): _silently(smtp.hang),
    ("accept_then_reset", "end"): _silently(smtp.reset),
    ("hang", "rcpt"): smtp.hang,
    ("drip", "end"): smtp.both(
        lambda connection: _server(connection).note(connection, "nothing"),
        smtp.drip("250-2.0.0 wait for it ", _DRIP_SECONDS),
    ),
    ("reset", "data"): smtp.reset,
    ("not_now", "rcpt"): _NOT_NOW,
    ("not_now", "end"): _NOT_NOW,
    ("never", "rcpt"): smtp.say("550 5.1.1 nobody of that name"),
    ("greylist", "rcpt"): _greylist,
    ("lie", "end"): _lie,
    ("store_then_refuse", "end"): _store_then_refuse,
    ("slow", "end"): _slowly,
}
