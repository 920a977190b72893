"""What an operator may do to a delivery, and what is at stake when they do. Pure: decided from all that is known of it.

Asked twice: before the operator confirms, and under the locks before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from db.delivery_state import CLOSING_OUTCOMES, TERMINAL, Outcome, State
from db.errors import OperationRefused
from db.phases import Status
from db.views import Attempt, Known, clock


class Verdict(StrEnum):
    """What became of an unanswered hand-over, in an operator's judgement."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    PENDING = "pending"


_VERDICTS: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.ACCEPTED: "You vouch that the provider has the mail. If it has not, the person waits in vain: nothing is "
        "sent any more, and the client is told that it was delivered.",
        Verdict.FAILED: "The person may have that mail all the same, with a link that works; the client is told that it "
        "failed, and a new request is a second mail. Evidence that comes later still makes it accepted.",
        Verdict.PENDING: "The person may have that mail: returning it to pending can send a second one.",
    }
)
_ASK_AGAIN = "have a new verification requested"


@dataclass(frozen=True, slots=True)
class RetryTerms:
    """How long a retried mail may wait, and what life its token must have left. Seconds."""

    delivery_deadline: float
    min_token_life: float

    def gate(self, known: Known) -> datetime:
        """Where the gate stands after a retry now."""
        return min(
            known.now + timedelta(seconds=self.delivery_deadline),
            known.verification.expires_at - timedelta(seconds=self.min_token_life),
        )


def of_retry(known: Known, terms: RetryTerms) -> str:
    """What a retry puts at stake. Raises OperationRefused."""
    _refuse(_no_retry(known, terms))
    failure = known.delivery.failure
    ended = f" It ended with {failure.code}: unless that was mended, it ends so again." if failure else ""
    return (
        "No hand-over is open, so no provider has the mail. It is due at once, with all its attempts and through any "
        f"provider, until {clock(terms.gate(known))}.{ended}"
    )


def of_resolve(known: Known, verdict: Verdict) -> str:
    """What resolving an outcome so puts at stake. Raises OperationRefused."""
    _refuse(_no_resolve(known, verdict))
    parts = (*_open(known), _VERDICTS[verdict], _gate(known, verdict), _evidence(known))
    return " ".join(part for part in parts if part)


def of_cancel(known: Known) -> str:
    """What cancelling puts at stake. Raises OperationRefused."""
    _refuse(_no_cancel(known))
    state = known.delivery.status
    if state is State.ACCEPTED:
        return "The mail is out: its link stops working, and the person who uses it is told so."
    if open_hand_overs(known):
        words = "If the person has that mail, its link stops working. It will not be repeated."
        return " ".join((*_open(known), words))
    if state in TERMINAL:
        return "No mail is out. The link stops working, and no retry can follow."
    return "No mail is out yet, and none will leave. The person gets nothing, and the client must ask anew."


def open_hand_overs(known: Known) -> tuple[Attempt, ...]:
    """The attempts after which a provider may have the mail, oldest first."""
    return tuple(a for a in known.attempts if a.handed_over_at and a.outcome not in CLOSING_OUTCOMES)


def _no_retry(known: Known, terms: RetryTerms) -> str | None:
    state, status = known.delivery.status, known.verification.status
    if status is not Status.REQUESTED:
        return f"the verification is {status}, so no mail may leave for it: {_ASK_AGAIN}"
    if state is State.ACCEPTED:
        return "a provider has the mail already: a new link needs a new request"
    if state is State.SENDING:
        return "a worker holds it at this moment: see what comes of that"
    if open_hand_overs(known):
        other = "say what became of it with `outbox resolve`"
        if state is not State.UNKNOWN:
            other = f"resolve it as accepted if you know that, else {_ASK_AGAIN}"
        return " ".join((*_open(known), f"The person may have that mail: {other}"))
    if terms.gate(known) <= known.now:
        ends = clock(known.verification.expires_at)
        return f"its link lives only until {ends}, too short for a mail: {_ASK_AGAIN}"
    return None


def _no_resolve(known: Known, verdict: Verdict) -> str | None:
    state = known.delivery.status
    if state is State.ACCEPTED:
        return "it is accepted already, and evidence is never taken back"
    if verdict is Verdict.ACCEPTED:
        handed_over = any(attempt.handed_over_at for attempt in known.attempts)
        return None if handed_over else "it was never handed to a provider, so none can have it"
    if any(attempt.outcome is Outcome.ACCEPTED for attempt in known.attempts):
        return "a provider said that it took the mail: run `repair`, or resolve it as accepted"
    if state is not State.UNKNOWN:
        return f"it is {state}: only an unknown outcome can be resolved as {verdict}"
    return None


def _no_cancel(known: Known) -> str | None:
    verification = known.verification
    if verification.status is Status.CONSUMED:
        return "the address was confirmed: there is nothing left to cancel"
    if verification.status is not Status.REQUESTED:
        return f"the verification is {verification.status} already, and its link is dead"
    if verification.expires_at <= known.now:
        return "the verification ran out already, and its link is dead"
    return None


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise OperationRefused(reason)


def _open(known: Known) -> Iterator[str]:
    for attempt in open_hand_overs(known):
        if attempt.handed_over_at:
            at = clock(attempt.handed_over_at)
            yield f"A hand-over to {attempt.provider} at {at} was never answered."


def _gate(known: Known, verdict: Verdict) -> str | None:
    """Why nothing would be sent after all."""
    delivery = known.delivery
    if verdict is Verdict.PENDING and (delivery.send_before is None or delivery.send_before <= known.now):
        return f"But its gate is closed ({delivery.gate_reason or 'its time is over'}): it ends, and nothing is sent."
    return None


def _evidence(known: Known) -> str:
    """What is known for or against it so far."""
    said = [f"{event.provider} reported {event.kind}" for event in known.events]
    looked = sum(attempt.error_code == "lookup_not_found" for attempt in known.attempts)
    if looked:
        said.append(f"{looked} look-ups found nothing, which proves nothing")
    if known.delivery.replay_count:
        said.append(f"repeated {known.delivery.replay_count} times")
    return f"Evidence so far: {'; '.join(said) or 'none'}."
