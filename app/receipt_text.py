"""A receipt as plain text, fit for a support ticket."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from db.delivery_state import Evidence
from db.ids import public
from db.logs import mask
from db.phases import Status
from db.views import Delivery, Receipt, TimelineEntry, Verification

_EVENT_WIDTH = 24
_EVIDENCE = {
    Evidence.RESPONSE: "the provider said so",
    Evidence.LOOKUP: "the provider was asked and had it",
    Evidence.WEBHOOK: "the provider reported it",
    Evidence.CONSUMED: "the person used the link",
    Evidence.OPERATOR: "an operator decided so",
}


def render(receipt: Receipt) -> str:
    """Head, timeline and next action; addresses masked, times in UTC."""
    return "\n".join((*_head(receipt), "", *_timeline(receipt), "", *_next(receipt))) + "\n"


def _head(receipt: Receipt) -> Iterator[str]:
    verification, delivery = receipt.known.verification, receipt.known.delivery
    yield f"Verification {public('ver', verification.id)}: {verification.phase}"
    yield f"  for        {verification.email_masked} (account {_one_line(verification.account_id)}, {verification.purpose})"
    yield f"  status     {verification.status}, {_link(verification)}"
    yield f"Delivery     {public('dlv', delivery.id)}: {delivery.status}"
    yield f"  attempts   {_attempts(delivery)}"
    if delivery.provider:
        said = f", its id {delivery.provider_message_id}" if delivery.provider_message_id else ""
        yield f"  provider   {delivery.provider}{said}"
    if delivery.evidence:
        yield f"  evidence   {_EVIDENCE[Evidence(delivery.evidence)]} ({delivery.evidence})"
    if delivery.failure:
        yield f"  failure    {delivery.failure.category}/{delivery.failure.code}"
    if verification.superseded_by:
        yield f"Superseded by {public('ver', verification.superseded_by)}"
    yield f"Request      {verification.correlation_id}"


def _attempts(delivery: Delivery) -> str:
    """The three counters, each of which has a budget of its own."""
    repeated = " after no answer" if delivery.replay_count else ""
    lost = " with a worker that died or was too late, which spends no try" if delivery.lost_count else ""
    return f"{delivery.attempt_count} spent, {delivery.replay_count} repeated{repeated}, {delivery.lost_count} lost{lost}"


def _link(verification: Verification) -> str:
    if verification.status is Status.REQUESTED:
        return f"its link can be used until {_clock(verification.expires_at)} UTC"
    return "its link no longer works"


def _timeline(receipt: Receipt) -> Iterator[str]:
    yield "Timeline (UTC)"
    start = receipt.known.verification.created_at
    for entry in receipt.timeline:
        yield f"  {_clock(entry.at)}  {_since(start, entry.at)}  {entry.event:{_EVENT_WIDTH}}  {_words(entry)}".rstrip()


def _words(entry: TimelineEntry) -> str:
    return "; ".join(part for part in (entry.by and f"by {entry.by}", entry.detail) if part)


def _next(receipt: Receipt) -> Iterator[str]:
    action = receipt.next_action
    yield f"Next: {action.code}" + (f" at {_clock(action.at)}" if action.at else "")
    yield f"  {action.text}"


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _since(start: datetime, at: datetime) -> str:
    return f"+{max(0.0, (at - start).total_seconds()):9.3f} s"


def _one_line(text: str) -> str:
    """Of the caller's own words what may go into a ticket: account ids are sometimes addresses."""
    masked = mask(text)
    return masked if len(masked) <= 80 else masked[:79] + "…"
