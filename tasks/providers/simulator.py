"""The provider of test clients: mail to it never leaves the process, and the address says what becomes of it.

What stands before a `+` in the local part counts, at any domain; docs/test-keys.md lists it for those who use it. Nothing is
remembered: the same mail meets the same fate in each process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final

from db.delivery_state import FailureCategory, Outcome
from db.provider_events import Kind
from tasks.deadline import Deadline
from tasks.providers.base import OutgoingMail, Report, Result
from tasks.shutdown import Shutdown

NAME: Final = "simulator"  # no entry of MAIL_URL can have it: theirs have a slash
SLOW_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.1  # how soon a shutdown is noticed

_OUT_OF_TIME: Final = Result(Outcome.NOT_SENT, "deadline_before_send")
_NOT_NOW: Final = Result(Outcome.TRANSIENT, "temporarily_refused", response_status="451 4.7.1")
_NO_SUCH_MAILBOX: Final = Result(
    Outcome.PERMANENT, "mailbox_unavailable", FailureCategory.RECIPIENT, response_status="550 5.1.1"
)
_CONTENT_REFUSED: Final = Result(
    Outcome.PERMANENT, "content_refused", FailureCategory.CONTENT, response_status="554 5.6.0"
)
_NO_ANSWER: Final = Result(Outcome.UNKNOWN, "reply_lost")
_NOT_FOUND: Final = Result(Outcome.NOT_SENT, "lookup_not_found")

# Before the hand-over, by the number of the attempt; after it; and what is reported of a mail that was taken.
_REFUSALS: Final = MappingProxyType({"rejected": _NO_SUCH_MAILBOX, "exhausted": _NOT_NOW})
_FIRST_REFUSALS: Final = MappingProxyType({"transient": _NOT_NOW})
_ANSWERS: Final = MappingProxyType(
    {"content": _CONTENT_REFUSED, "unknown": _NO_ANSWER, "unresolved": _NO_ANSWER}
)
_REPORTS: Final = MappingProxyType(
    {"delivered": Kind.DELIVERED, "bounce": Kind.BOUNCED, "complaint": Kind.COMPLAINED}
)

# Every address that means something.
FATES: Final = frozenset({"accepted", "slow", *_REFUSALS, *_FIRST_REFUSALS, *_ANSWERS, *_REPORTS})


class Simulator:
    """Like SMTP it knows no key, so an unanswered mail may be repeated once; like an HTTP API it can be asked later."""

    name: Final = NAME
    replay_window: Final = 0.0
    can_look_up: Final = True

    def __init__(self, shutdown: Shutdown, *, slow_seconds: float = SLOW_SECONDS) -> None:
        self._shutdown = shutdown
        self._slow_seconds = slow_seconds

    def send(self, mail: OutgoingMail, deadline: Deadline, hand_over: Callable[[], None]) -> Result:
        """Send one mail nowhere; see `Provider.send`."""
        if deadline.expired:
            return _OUT_OF_TIME
        fate = _fate(mail.recipient)
        refusal = _REFUSALS.get(fate) or (_FIRST_REFUSALS.get(fate) if mail.attempt == 1 else None)
        if refusal is not None:
            return refusal
        hand_over()
        if not deadline.remaining():  # the hand-over used it up
            return _OUT_OF_TIME
        if fate == "slow":
            self._think(deadline)
        return _ANSWERS.get(fate) or _accepted(mail.delivery_key)

    def look_up(self, delivery_key: str, recipient: str, deadline: Deadline) -> Result:
        """Whether it has the mail; of an unresolved one it never says so."""
        return _NOT_FOUND if _fate(recipient) == "unresolved" else _accepted(delivery_key)

    def reports(self, delivery_key: str, recipient: str) -> Sequence[Report]:
        """What a webhook would bring."""
        kind = _REPORTS.get(_fate(recipient))
        return [] if kind is None else [Report(f"{delivery_key}.{kind}", kind)]

    def close(self) -> None:
        """There is nothing to let go of."""

    def _think(self, deadline: Deadline) -> None:
        """For a while, but well within the deadline, and no longer once the worker has to stop."""
        until = deadline.within(min(self._slow_seconds, deadline.remaining() / 2))
        while not until.expired and not self._shutdown.requested:
            time.sleep(min(_LOOK_SECONDS, until.remaining()))


def _fate(recipient: str) -> str:
    return recipient.rpartition("@")[0].partition("+")[0].lower()


def _accepted(delivery_key: str) -> Result:
    return Result(
        Outcome.ACCEPTED, "accepted", response_status="250 2.0.0", provider_message_id=f"sim_{delivery_key}"
    )
