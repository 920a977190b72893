"""What providers say by themselves, recorded once each and applied in the same transaction, in whatever order it comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from db import deliveries
from db.delivery_rules import Facts
from db.delivery_state import Evidence
from db.ids import new_id
from db.queries import load
from db.session import Database, Tx

_SQL = load("provider_events.sql")


class Kind(StrEnum):
    """`provider_events.kind`. Each of these proves that the provider had taken the mail."""

    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    BOUNCED = "bounced"
    COMPLAINED = "complained"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `event_id` is the provider's own; `occurred_at` its time, if it named one; `body` redacted."""

    provider: str
    event_id: str
    delivery_id: UUID
    kind: Kind
    occurred_at: datetime | None = None
    body: Mapping[str, Any] | None = None


def record(database: Database, event: Event) -> bool:
    """Record an event and apply it. False, and nothing changes, when it is known. Raises NotFound, DatabaseUnavailable."""
    with database.transaction() as tx:
        return record_in(tx, event)


def record_in(tx: Tx, event: Event) -> bool:
    """The same inside the caller's transaction, which holds no lock behind the outbox row's in the lock order."""
    facts = deliveries.lock(tx, event.delivery_id)
    applies = _had_the_mail(facts, event.provider)
    recorded = tx.execute(
        _SQL["insert_event"],
        {
            "id": new_id(),
            "provider": event.provider,
            "event_id": event.event_id,
            "delivery_id": event.delivery_id,
            "kind": event.kind,
            "occurred_at": event.occurred_at,
            "body": None if event.body is None else Jsonb(event.body),
            "applies": applies,
        },
    ).fetchone()
    if recorded is None:
        return False
    if applies:
        deliveries.record_evidence(tx, facts, Evidence.WEBHOOK, provider=event.provider)
    return True


def _had_the_mail(facts: Facts, provider: str) -> bool:
    """Whether it can be about this delivery at all: a hand-over commits before its provider can have the mail."""
    return any(attempt.handed_over_at and attempt.provider == provider for attempt in facts.attempts)
