"""Reads verifications as callers see them, and receipts: all that is known of one, from one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from db import advice, domain_typos, next_action, timeline
from db.delivery_state import Outcome, State
from db.errors import NotFound
from db.phases import Status
from db.queries import load
from db.session import Database, Row, Tx
from db.views import (
    Attempt,
    Change,
    Delivery,
    Failure,
    Known,
    OperatorAction,
    Pause,
    Provider,
    ProviderEvent,
    Receipt,
    Verification,
    mask,
)

_SQL = load("receipts.sql")


def read(database: Database, client_id: UUID | None, verification_id: UUID) -> Verification:
    """One verification of a client (None: of any). Raises NotFound."""
    with database.transaction() as tx:
        return read_in(tx, client_id, verification_id)


def read_in(tx: Tx, client_id: UUID | None, verification_id: UUID) -> Verification:
    """The same inside the caller's transaction. Raises NotFound."""
    found = read_many_in(tx, client_id, [verification_id])
    if not found:
        raise NotFound("no such verification")
    return found[verification_id]


def read_many_in(
    tx: Tx, client_id: UUID | None, verification_ids: Sequence[UUID]
) -> dict[UUID, Verification]:
    """Those of them that are the client's (None: anybody's), by id."""
    names = {"ids": list(verification_ids), "client_id": client_id}
    return {row["id"]: verification_of(row) for row in tx.execute(_SQL["read_verifications"], names)}


def read_receipt(database: Database, client_id: UUID | None, verification_id: UUID) -> Receipt:
    """The receipt of one verification of a client (None: of any). Raises NotFound."""
    with database.transaction() as tx:
        known = read_known_in(tx, client_id, verification_id)
    return Receipt(known, timeline.build(known), next_action.decide(known))


def read_known_in(tx: Tx, client_id: UUID | None, verification_id: UUID) -> Known:
    """All that is known of one, inside the caller's transaction. Raises NotFound."""
    row = tx.execute(_SQL["read_receipt"], {"id": verification_id, "client_id": client_id}).fetchone()
    if row is None:
        raise NotFound("no such verification")
    return _known(row)


def _known(row: Row) -> Known:
    return Known(
        verification=verification_of(row),
        delivery=_delivery(row),
        attempts=tuple(_attempt(item) for item in row["attempts"]),
        events=tuple(_event(item) for item in row["events"]),
        changes=tuple(_change(item) for item in row["changes"]),
        actions=tuple(_action(item) for item in row["actions"]),
        pauses=tuple(_pause(item) for item in row["pauses"]),
        providers=tuple(Provider(item["name"], _maybe(item["accepted_at"])) for item in row["providers"]),
        swept_at=row["swept_at"],
        now=row["now"],
    )


def verification_of(row: Row) -> Verification:
    """A row of `read_verifications`, or one made of the same columns."""
    return Verification(
        id=row["id"],
        client_id=row["client_id"],
        account_id=row["external_id"],
        purpose=row["purpose"],
        email_masked=mask(row["email"]),
        status=Status(row["status"]),
        delivery_id=row["delivery_id"],
        delivery_status=State(row["delivery_status"]),
        expires_at=row["expires_at"],
        created_at=row["created_at"],
        consumed_at=row["consumed_at"],
        next_attempt_at=row["next_attempt_at"],
        correlation_id=row["correlation_id"],
        idempotency_key=row["idempotency_key"],
        superseded_by=row["superseded_by"],
        mail_event=row["mail_event"],
        mail_event_at=row["mail_event_at"],
        failure=_failure(row),
        metadata=row["metadata"],
        suggestion=_suggestion(row["email"]),
    )


def _suggestion(email: str | None) -> str | None:
    """The address with the domain that was probably meant, masked as the address itself is."""
    if email is None:
        return None
    local, _, domain = email.rpartition("@")
    meant = domain_typos.suggest(domain)
    return mask(f"{local}@{meant}") if meant else None


def _failure(row: Row) -> Failure | None:
    category, code = row["failure_category"], row["failure_code"]
    return Failure(category, code, advice.advise(category, code)) if category else None


def _delivery(row: Row) -> Delivery:
    return Delivery(
        id=row["delivery_id"],
        status=State(row["delivery_status"]),
        lease_owner=row["lease_owner"],
        lease_until=row["lease_until"],
        lease_token=row["lease_token"],
        attempt_count=row["attempt_count"],
        lost_count=row["lost_count"],
        replay_count=row["replay_count"],
        next_attempt_at=row["next_attempt_at"],
        send_before=None if row["gate_reason"] else row["send_before"],
        gate_reason=row["gate_reason"],
        open_provider=row["open_provider"],
        last_error=row["last_error"],
        failure=_failure(row),
        provider=row["provider"],
        idempotency_key=row["provider_key"],
        provider_message_id=row["provider_message_id"],
        evidence=row["evidence"],
        created_at=row["delivery_created_at"],
        completed_at=row["completed_at"],
    )


# Rows that came as JSON: their times are text.


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _maybe(text: str | None) -> datetime | None:
    return _moment(text) if text else None


def _attempt(item: Mapping[str, Any]) -> Attempt:
    return Attempt(
        lease_token=item["lease_token"],
        worker=item["worker"],
        provider=item["provider"],
        started_at=_moment(item["started_at"]),
        handed_over_at=_maybe(item["handed_over_at"]),
        finished_at=_maybe(item["finished_at"]),
        outcome=Outcome(item["outcome"]) if item["outcome"] else None,
        stale=item["stale"],
        response_status=item["response_status"],
        error_code=item["error_code"],
        provider_message_id=item["provider_message_id"],
        correlation_id=item["correlation_id"],
        release=item["release"],
    )


def _event(item: Mapping[str, Any]) -> ProviderEvent:
    return ProviderEvent(
        provider=item["provider"],
        event_id=item["event_id"],
        kind=item["kind"],
        occurred_at=_maybe(item["occurred_at"]),
        received_at=_moment(item["received_at"]),
        applied_at=_maybe(item["applied_at"]),
    )


def _change(item: Mapping[str, Any]) -> Change:
    return Change(
        at=_moment(item["at"]),
        delivery_id=UUID(item["delivery_id"]) if item["delivery_id"] else None,
        before=item["before"],
        after=item["after"],
        code=item["code"],
        provider=item["provider"],
        evidence=item["evidence"],
    )


def _action(item: Mapping[str, Any]) -> OperatorAction:
    return OperatorAction(
        id=UUID(item["id"]),
        at=_moment(item["at"]),
        action=item["action"],
        operator=item["operator"],
        reason=item["reason"],
        from_state=State(item["from_state"]),
        to_state=State(item["to_state"]),
    )


def _pause(item: Mapping[str, Any]) -> Pause:
    return Pause(
        provider=item["provider"],
        sender=item["sender"],
        until=_moment(item["until"]),
        code=item["code"],
        refused_at=_moment(item["refused_at"]),
        by_operator=item["kind"] == "operator",
    )
