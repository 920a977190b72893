"""What a mail provider is to the delivery engine: one call that sends, one value for what came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from db.delivery_state import FailureCategory, Outcome
from db.provider_events import Kind
from tasks.deadline import Deadline


@dataclass(frozen=True, slots=True)
class OutgoingMail:
    """One rendered mail; the same delivery always renders the same bytes.

    Its repr shows the delivery key only: what else it holds is an address and a token.
    """

    delivery_key: str  # "dlv_" + 32 hex digits: our idempotency key at the provider
    envelope_from: str = field(repr=False)
    recipient: str = field(repr=False)  # domain in its ASCII (IDNA) form
    subject: str = field(repr=False)
    text: str = field(repr=False)
    html: str = field(repr=False)
    message_id: str = field(repr=False)  # with its angle brackets
    # The full RFC 5322 message, CRLF line ends. 7bit, except that the To header of a recipient whose local
    # part is not ASCII is UTF-8, which only a server with SMTPUTF8 is given.
    mime: bytes = field(repr=False)
    # Every header of the message but the MIME ones, decoded, for providers that take fields instead of bytes.
    headers: Mapping[str, str] = field(repr=False)
    # Counted from 1 over those that said something about this mail. No part of what is sent.
    attempt: int = 1

    @property
    def digest(self) -> bytes:
        """SHA-256 over what the provider gets: envelope and message. Pinned at the first open hand-over."""
        # No part of an envelope holds a line end (`tasks.message` refuses it), so parts cannot run together.
        envelope = f"{self.envelope_from}\n{self.recipient}\n".encode()
        return hashlib.sha256(envelope + self.mime).digest()


@dataclass(frozen=True, slots=True)
class Pause:
    """How long a provider that refuses us is left alone.

    `config`: somebody has to change something; `away`: it will come back by itself.
    """

    kind: Literal["config", "away"]
    retry_after: float | None = None  # seconds, if the provider named them


@dataclass(frozen=True, slots=True)
class Result:
    """What one call to a provider came to. Never holds text of the provider's: that may carry an address."""

    outcome: Outcome
    code: str  # stable snake_case: what operators filter by and the receipt explains
    category: FailureCategory | None = None  # for `permanent`, and `refused_us` that needs somebody to act
    response_status: str | None = None  # the reply's numbers, e.g. "250 2.0.0"
    provider_message_id: str | None = None
    pause: Pause | None = None  # for `refused_us`


def quotes_mail(text: str | None, mail: OutgoingMail) -> bool:
    """Whether what a provider calls its id for a mail was copied out of it: kept and shown, it could be the token."""
    letters = "".join(filter(str.isalnum, text or "")).casefold()
    said = "".join(filter(str.isalnum, f"{mail.recipient} {mail.text}")).casefold()
    return bool(letters) and letters in said


class Provider(Protocol):
    """One account at one mail provider. Every method may be called from many threads."""

    @property
    def name(self) -> str:
        """Kind and account label, e.g. `smtp/mail.example.com`: loggable, up to 64 of `a-z0-9./_-`."""

    @property
    def replay_window(self) -> float:
        """Seconds for which a repeated delivery key is answered without sending again; 0.0: keyless."""

    @property
    def can_look_up(self) -> bool:
        """Whether it also is a `LookUp`."""

    def send(self, mail: OutgoingMail, deadline: Deadline, hand_over: Callable[[], None]) -> Result:
        """Send one mail, in whatever time `deadline` leaves; when this returns, nothing leaves any more.

        `hand_over` is called at most once, at the last instant at which the provider certainly has nothing.
        What it raises comes out unchanged and nothing was sent. Each other problem is a Result, never an
        exception.
        """

    def close(self) -> None:
        """Let go of idle connections. Sends that are under way finish."""


@runtime_checkable
class LookUp(Protocol):
    """A provider that can say what became of an earlier send."""

    def look_up(self, delivery_key: str, recipient: str, deadline: Deadline) -> Result:
        """`accepted`, or `not_sent` with `lookup_not_found`, which never proves that it was not accepted."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a provider says by itself of a mail that it took. `event_id` is the same however often it says so."""

    event_id: str
    kind: Kind


@runtime_checkable
class Reports(Protocol):
    """A provider in this process, which needs no webhook to tell what became of a mail it took."""

    def reports(self, delivery_key: str, recipient: str) -> Sequence[Report]:
        """Asked once it has accepted the mail. Not asked again: what a crash keeps from being recorded is lost."""
