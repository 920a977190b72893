"""SMTP: `smtp://user:password@host:port` (STARTTLS) and `smtps://` (TLS from the first byte).

The provider certainly has nothing until the message's bytes leave, and everything that can be known before
is known by then: the connection, the login, the sender, the recipient, and the server's "go on" to DATA. So
the hand-over stands between that 354 and the message, and whatever fails earlier is no `unknown`.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from db.delivery_state import FailureCategory, Outcome
from tasks.deadline import Deadline
from tasks.providers.base import OutgoingMail, Result
from tasks.providers.smtp_dialogue import Dialogue, Lost, Refused, Server, Unreadable, Unsuitable
from tasks.providers.smtp_idle import IdleConnections
from tasks.providers.smtp_replies import (
    ABOUT_US,
    Phase,
    Reply,
    away,
    classify,
    config,
    permanent,
    transient,
    unknown,
)

_LOG = logging.getLogger(__name__)

# How long a connection that has been idle may take to answer MAIL. One that a firewall has forgotten never
# does, and there must be time left for a fresh one.
_REUSED_SECONDS: Final = 3.0

# Our own slowness: it says nothing about the mail, nor about the provider.
_OUT_OF_TIME: Final = Result(Outcome.NOT_SENT, "deadline_before_send")


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a connection does not wait for the message's bytes."""

    result: Result
    stale: bool = False  # it says more about an old connection than about the server


class SmtpProvider:
    """One account at one SMTP server. SMTP has neither a key that the server would honour nor a look-up."""

    replay_window: Final = 0.0
    can_look_up: Final = False

    def __init__(self, name: str, server: Server, helo: str | None = None) -> None:
        self.name: Final = name
        self._server = server
        self._helo = helo
        self._idle = IdleConnections()

    def send(self, mail: OutgoingMail, deadline: Deadline, hand_over: Callable[[], None]) -> Result:
        """Send one mail; see `Provider.send`."""
        if not _well_formed(mail):
            return permanent("malformed_message", FailureCategory.CONTENT)
        if deadline.expired:
            return _OUT_OF_TIME
        data = _stuffed(mail.mime)
        dialogue = self._announced(mail, deadline)
        if isinstance(dialogue, Result):
            return dialogue
        try:
            hand_over()
        except BaseException:
            dialogue.reset()
            raise
        try:
            return self._transmit(dialogue, data, deadline)
        except Exception as error:
            dialogue.reset()
            _tell(dialogue, error)
            return unknown("adapter_error")
        except BaseException:
            dialogue.reset()
            raise

    def close(self) -> None:
        """Take leave on the idle connections."""
        self._idle.close()

    def _announced(self, mail: OutgoingMail, deadline: Deadline) -> Dialogue | Result:
        """A connection on which the server waits for this message's bytes; or why there is none."""
        idle = self._idle.take()
        if idle is not None:
            failure = self._announce(idle, mail, deadline, reused=True)
            if failure is None:
                return idle
            if not failure.stale:
                return failure.result
        # Not the machine's own name, which is nobody's business: the sender's domain, unless told otherwise.
        fresh = Dialogue(self._helo or mail.envelope_from.rpartition("@")[2])
        failure = self._announce(fresh, mail, deadline, reused=False)
        return fresh if failure is None else failure.result

    def _announce(
        self, dialogue: Dialogue, mail: OutgoingMail, deadline: Deadline, *, reused: bool
    ) -> _Failure | None:
        """Bring the dialogue to the point where the message's bytes are awaited."""
        try:
            if reused:
                dialogue.until(deadline.within(_REUSED_SECONDS))
            else:
                dialogue.open(self._server, deadline)
            _mail_rcpt_data(dialogue, mail, deadline)
        except Refused as refused:
            reply, phase = refused.reply, dialogue.phase
            self._part(dialogue, reply)
            stale = reused and (reply.code == 421 or (phase is Phase.MAIL and reply.code < 500))
            return _Failure(classify(phase, reply), stale)
        except Exception as error:
            dialogue.reset()
            stale = reused and isinstance(error, (Lost, Unreadable)) and not deadline.expired
            return _Failure(_problem(dialogue, error), stale)
        except BaseException:
            dialogue.reset()
            raise
        return None

    def _transmit(self, dialogue: Dialogue, data: bytes, deadline: Deadline) -> Result:
        """Send the message and read what the server says to it. From here on a retry might be a duplicate."""
        dialogue.phase = Phase.END
        result = self._not_begun(dialogue, deadline)
        if result is None:
            try:
                dialogue.send(data)
            except Lost:
                # The dot leaves with the last bytes and they never did, so nothing was accepted. The server
                # took this recipient and broke off at this message, which may be its fault: `refused_us`
                # would let one such mail pause all others for ever, `transient` ends with the mail's own
                # budget.
                result = transient("connection_lost_before_end")
        if result is not None:
            dialogue.reset()
            return result
        try:
            reply = Reply(*dialogue.getreply())
        except Lost as lost:
            dialogue.reset()
            return unknown("reply_timeout" if lost.timed_out else "reply_lost")
        except Unreadable:
            dialogue.reset()
            return unknown("reply_unreadable")
        result = classify(Phase.END, reply)
        dialogue.messages += 1
        self._part(dialogue, reply)
        return result

    def _not_begun(self, dialogue: Dialogue, deadline: Deadline) -> Result | None:
        """Whether something came up during the hand-over, while it is still certain that nothing was sent."""
        if deadline.expired:
            return _OUT_OF_TIME
        if not dialogue.silent():
            return transient("connection_lost")
        return None

    def _part(self, dialogue: Dialogue, reply: Reply) -> None:
        """Keep the connection if both sides agree that it can go on, else let it go."""
        if dialogue.phase in ABOUT_US:
            dialogue.leave()
        elif reply.code == 421 or (reply.code < 400 and (dialogue.phase, reply.code) != (Phase.END, 250)):
            dialogue.reset()
        else:
            dialogue.needs_reset = reply.code >= 400
            self._idle.put(dialogue)


def _mail_rcpt_data(dialogue: Dialogue, mail: OutgoingMail, deadline: Deadline) -> None:
    """Everything that is said before the message's bytes."""
    dialogue.phase = Phase.MAIL
    if dialogue.needs_reset and dialogue.docmd("RSET")[0] != 250:
        raise Lost(timed_out=False)
    options = f" SIZE={len(mail.mime)}" if dialogue.has_extn("size") else ""
    if not mail.recipient.isascii():
        if not dialogue.has_extn("smtputf8"):
            raise Unsuitable(permanent("smtputf8_unsupported", FailureCategory.RECIPIENT))
        options += " SMTPUTF8"
    dialogue.expect({250}, *dialogue.docmd(f"MAIL FROM:<{mail.envelope_from}>{options}"))
    dialogue.until(deadline)
    dialogue.phase = Phase.RCPT
    dialogue.expect({250, 251}, *dialogue.docmd(f"RCPT TO:<{mail.recipient}>"))
    dialogue.phase = Phase.DATA
    dialogue.expect({354}, *dialogue.docmd("DATA"))
    if not dialogue.silent():  # it hung up, or has "accepted" what it does not have
        raise Lost(timed_out=False)


# Errors of connecting and of the TLS handshake; the first that fits.
_NOT_CONNECTED: Final = (
    (ssl.SSLCertVerificationError, config("tls_certificate_invalid")),
    (ssl.SSLError, away("tls_failed")),
    (socket.gaierror, away("dns_failed")),
    (ConnectionRefusedError, away("connection_refused")),
    (TimeoutError, away("connect_timeout")),
    (OSError, away("connect_failed")),
)


def _problem(dialogue: Dialogue, error: Exception) -> Result:
    """What an error before the hand-over comes to. Nothing was sent, whatever it is."""
    # Once the server has heard this recipient, silence may be about him, and pausing everybody would be his
    # to cause; before, it is about the server.
    verdict = away if dialogue.phase in ABOUT_US else transient
    match error:
        case Unsuitable():
            return error.result
        case Lost():
            return verdict("smtp_timeout" if error.timed_out else "connection_lost")
        case Unreadable():
            return verdict("smtp_protocol_error")
    for kind, result in _NOT_CONNECTED:
        if isinstance(error, kind):
            return result
    _tell(dialogue, error)
    return transient("adapter_error")


def _tell(dialogue: Dialogue, error: Exception) -> None:
    """Log a mistake of ours; by its type alone, for its text may quote the mail."""
    _LOG.error("smtp adapter failed in phase %s: %s", dialogue.phase, type(error).__name__)


def _well_formed(mail: OutgoingMail) -> bool:
    """Whether envelope and message mean the same to every server.

    A bare CR or LF is where servers disagree on a message's end: behind one, a second message could be
    smuggled.
    """
    lines = mail.mime.count(b"\r\n")
    addresses = (mail.envelope_from, mail.recipient)
    return (
        lines == mail.mime.count(b"\r") == mail.mime.count(b"\n")
        and not any(re.search(r"[\x00-\x1f\x7f<>\ud800-\udfff]|^$", address) for address in addresses)
        and mail.envelope_from.isascii()
    )


def _stuffed(mime: bytes) -> bytes:
    """The message as it crosses the wire, final dot included: they leave in one step."""
    end = b"" if mime.endswith(b"\r\n") else b"\r\n"
    return re.sub(rb"(?m)^\.", b"..", mime) + end + b".\r\n"
