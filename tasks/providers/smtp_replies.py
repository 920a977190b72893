"""What an SMTP reply means for the mail, for the provider, and for whose move it is. Pure.

The question behind every rule is what goes wrong if it is mistaken. `permanent` loses a mail that could
have gone; `refused_us` lets one mail stop all others, so anybody who can enter an address could stop the
service; `transient` costs one of the mail's own attempts. Where a reply does not say clearly whom it is
about, it is `transient`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from db.delivery_state import FailureCategory, Outcome
from tasks.providers.base import Pause, Result


class Phase(StrEnum):
    """How far the dialogue has come: what the reply answers."""

    GREETING = "greeting"
    EHLO = "ehlo"
    STARTTLS = "starttls"
    LOGIN = "login"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"  # the command; its 354 is the last reply before the hand-over
    END = "end"  # the reply to the message, after the final dot


# Up to here nothing has been said about a recipient or a message, so nothing that goes wrong is about this
# mail.
ABOUT_US: Final = frozenset({Phase.GREETING, Phase.EHLO, Phase.STARTTLS, Phase.LOGIN, Phase.MAIL})


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply. Its text stays here: the server may have put an address into it."""

    code: int
    text: bytes = b""

    @property
    def enhanced(self) -> str:
        """The enhanced status code of RFC 3463, if it agrees with the reply's class; else empty."""
        found = re.match(rb"([245]\.\d{1,3}\.\d{1,3})(?:\s|$)", self.text)
        return found[1].decode() if found and found[1][:1] == b"%d" % (self.code // 100) else ""

    @property
    def status(self) -> str:
        """The numbers alone, fit for rows and logs."""
        return f"{self.code} {self.enhanced}".rstrip()

    @property
    def queue_id(self) -> str | None:
        """The server's own id for an accepted message, where it is written in one of the usual ways."""
        found = _QUEUE_ID.search(self.text)
        return found[1].decode() if found else None


# Postfix and kin; Exim; SES. Only characters that no address could be made of.
_QUEUE_ID = re.compile(rb"(?:queued as |\bid=|^(?:2\.0\.0 )?Ok )([A-Za-z0-9_-]{6,80})(?=[\s;)]|$)", re.I)


def away(code: str) -> Result:
    """Nothing is said about the mail; the provider will come back by itself."""
    return Result(Outcome.REFUSED_US, code, pause=Pause("away"))


def config(code: str) -> Result:
    """Nothing is said about the mail; somebody has to change something first."""
    return Result(Outcome.REFUSED_US, code, FailureCategory.CONFIG, pause=Pause("config"))


def transient(code: str) -> Result:
    """Certainly not accepted, perhaps later."""
    return Result(Outcome.TRANSIENT, code)


def permanent(code: str, category: Literal[FailureCategory.RECIPIENT, FailureCategory.CONTENT]) -> Result:
    """Certainly not accepted, and never will be."""
    return Result(Outcome.PERMANENT, code, category)


def unknown(code: str) -> Result:
    """The message may have been accepted."""
    return Result(Outcome.UNKNOWN, code)


_NO_SUCH_MAILBOX = permanent("mailbox_unavailable", FailureCategory.RECIPIENT)
_CONTENT = permanent("content_refused", FailureCategory.CONTENT)
_TOO_LARGE = permanent("message_too_large", FailureCategory.CONTENT)
_SENDER = config("sender_refused")
_LOGIN = config("login_refused")
_AUTHENTICATION = config("sender_not_authenticated")

# A refusal before any mail was spoken of, by what it refuses: for now (4xx), for good (5xx).
_BEFORE_MAIL: Final = {
    Phase.GREETING: (away("service_unavailable"), config("greeting_refused")),
    Phase.EHLO: (away("service_unavailable"), config("helo_refused")),
    Phase.STARTTLS: (away("starttls_unavailable"), config("starttls_refused")),
    Phase.LOGIN: (away("login_unavailable"), _LOGIN),
    Phase.MAIL: (away("service_unavailable"), _SENDER),
}

# Codes that mean the same wherever they come: we are not logged in, or not well enough.
_LOGIN_CODES: Final = {
    530: config("authentication_required"),  # some say so when they want STARTTLS
    534: _LOGIN,
    535: _LOGIN,
    538: config("encryption_required"),
}

# A 5xx to RCPT, DATA or the message by its enhanced status, the longest prefix first. X.7.1, X.7.0 and the
# other policy codes are absent on purpose: "relaying denied", "your host is listed" and "this recipient
# does not want you" all come as 550 5.7.1.
_ENHANCED: Final = {
    "5.1.7": _SENDER,  # bad sender's mailbox
    "5.1.8": _SENDER,  # bad sender's domain
    "5.1.": _NO_SUCH_MAILBOX,
    "5.2.1": _NO_SUCH_MAILBOX,  # disabled
    "5.2.2": transient("mailbox_full"),  # people clear up, whatever the server thinks of it
    "5.2.3": _TOO_LARGE,
    "5.3.4": _TOO_LARGE,
    "5.7.8": _LOGIN,
    "5.7.9": _LOGIN,
    "5.7.10": config("encryption_required"),
    "5.7.11": config("encryption_required"),
    "5.7.13": _LOGIN,  # our account is disabled
    "5.7.14": _LOGIN,
    "5.7.17": _NO_SUCH_MAILBOX,  # the mailbox has another owner now (RFC 7293)
    "5.7.18": _NO_SUCH_MAILBOX,
    "5.7.20": _AUTHENTICATION,  # DKIM
    "5.7.21": _AUTHENTICATION,
    "5.7.22": _AUTHENTICATION,
    "5.7.23": _AUTHENTICATION,  # SPF
    "5.7.24": _AUTHENTICATION,
    "5.7.25": _AUTHENTICATION,  # reverse DNS
    "5.7.26": _AUTHENTICATION,  # DMARC
    "5.7.27": _AUTHENTICATION,  # the sender's domain takes no mail
}

# RCPT without a telling enhanced status. 501: the address was the command's only argument.
_RCPT: Final = {
    501: _NO_SUCH_MAILBOX,
    550: _NO_SUCH_MAILBOX,
    551: _NO_SUCH_MAILBOX,
    552: transient("mailbox_full"),  # RFC 5321 4.5.3.1.10: take it for a 452
    553: _NO_SUCH_MAILBOX,
    556: _NO_SUCH_MAILBOX,  # RFC 7504: the domain takes no mail
}

# The server lost the thread: that is no verdict on the message.
_PROTOCOL_CODES: Final = frozenset({500, 502, 503, 504})


def classify(phase: Phase, reply: Reply) -> Result:
    """What a reply comes to that is not the hoped-for one; and the reply to the message, which may be."""
    verdict = _verdict(phase, reply.code, reply.enhanced)
    queue_id = reply.queue_id if verdict.outcome is Outcome.ACCEPTED else None
    return replace(verdict, response_status=reply.status, provider_message_id=queue_id)


def _verdict(phase: Phase, code: int, enhanced: str) -> Result:
    if phase in ABOUT_US:
        return _before_mail(phase, code, enhanced)
    if phase is Phase.END and code == 250:
        return Result(Outcome.ACCEPTED, "accepted")
    if 400 <= code < 500:
        return _not_now(phase, code, enhanced)
    if code >= 500:
        return _never(phase, code, enhanced)
    # Neither yes nor no. Before the hand-over it had no message; afterwards nobody knows.
    return unknown("reply_unreadable") if phase is Phase.END else transient("smtp_protocol_error")


def _before_mail(phase: Phase, code: int, enhanced: str) -> Result:
    for_now, for_good = _BEFORE_MAIL[phase]
    if code in _LOGIN_CODES:
        return _LOGIN_CODES[code]
    if phase is Phase.MAIL and (code == 552 or enhanced == "5.3.4"):
        return _TOO_LARGE  # MAIL announces the size, so this one is about the message
    if code >= 500:
        return for_good
    return for_now if code >= 400 else away("smtp_protocol_error")


def _not_now(phase: Phase, code: int, enhanced: str) -> Result:
    if code == 421 and phase is not Phase.END:
        return away("service_unavailable")
    # 421 to the message itself is an ordinary refusal of it: the server has read it, and some answer so to
    # what they take for spam. If the server is going down instead, the next connection finds that out, at
    # no mail's expense.
    return transient("mailbox_full" if enhanced == "4.2.2" else "temporarily_refused")


def _never(phase: Phase, code: int, enhanced: str) -> Result:
    if code in _LOGIN_CODES:
        return _LOGIN_CODES[code]
    for prefix in (enhanced, enhanced[:4]):
        if prefix in _ENHANCED:
            return _ENHANCED[prefix]
    if phase is Phase.END:
        return _message_refused(code, enhanced)
    if enhanced.startswith("5.7."):
        return transient("refused_by_policy")
    if phase is Phase.RCPT and code in _RCPT:
        return _RCPT[code]
    return transient("refused_without_reason")


def _message_refused(code: int, enhanced: str) -> Result:
    """5xx to the message is about what it says, unless the status speaks of the system, the route or SMTP."""
    if code == 552:
        return _TOO_LARGE
    if enhanced.startswith(("5.3.", "5.4.", "5.5.")) or (not enhanced and code in _PROTOCOL_CODES):
        return transient("refused_without_reason")
    return _CONTENT
