"""The lease protocol: claim, hand over, settle, reclaim, evidence. One typed function a step; the SQL is in `leases.sql`.

Every step is one short transaction. None is open during a network call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from db import deliveries, provider_pauses
from db import delivery_rules as rules
from db.deliveries import SQL
from db.delivery_rules import AttemptResult, Facts, Move, Policy, ProviderTraits
from db.delivery_state import CLOSING_OUTCOMES, Evidence, Outcome, State
from db.provider_pauses import Refusal
from db.session import Database, Row, Tx


@dataclass(frozen=True, slots=True)
class ClaimTerms:
    """Who claims, for how long, and through which providers of a route, in order of preference. Times in seconds."""

    route: str
    owner: str
    lease_seconds: float
    sender: str
    providers: tuple[ProviderTraits, ...]
    evidence_window: float
    unknown_budget: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a claimer's index scans start: the last row it took of each state, or a little before the present."""

    pending: tuple[datetime, UUID]
    unknown: tuple[datetime, UUID]


BEGINNING = Position(*[(datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))] * 2)


@dataclass(frozen=True, slots=True)
class Lease:
    """Bounded ownership of one delivery, with all that sending needs. `token` is the fence."""

    delivery_id: UUID
    verification_id: UUID
    client_id: UUID
    owner: str
    token: int
    route: str
    action: str  # send, replay or look_up
    provider: str
    sender: str
    is_probe: bool
    claimed_at: datetime
    due_at: datetime
    attempt_count: int
    payload_digest: bytes | None
    recipient: str
    purpose: str
    locale: str | None
    template_version: int
    branding_id: UUID | None  # None: our own words
    token_key_id: str
    token_nonce: bytes
    created_at: datetime
    expires_at: datetime
    correlation_id: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settle found: the row's state afterwards; `stale` when the result came too late to change it."""

    state: State
    stale: bool = False


def claim(
    database: Database, terms: ClaimTerms, position: Position = BEGINNING, limit: int = 1
) -> list[Lease]:
    """Lease up to `limit` due deliveries; an empty list when nothing is due or no provider takes mail.

    Only rows that were leased are returned; the statement also ends suppressed ones and puts off unknown ones.
    """
    for _ in range(_ENDED_AT_ONCE):
        rows = _claim_once(database, terms, position, limit)
        leased = [_lease(row, terms.sender) for row in rows if row["lease_owner"] is not None]
        if leased or not rows:
            return leased
    return []


_ENDED_AT_ONCE = 1000  # suppressed or put off, before a claim gives up


def _claim_once(database: Database, terms: ClaimTerms, position: Position, limit: int) -> list[Row]:
    with database.transaction() as tx:
        return tx.execute(
            SQL["claim"],
            {
                **_position(position),
                **_providers(terms),
                "route": terms.route,
                "owner": terms.owner,
                "lease_seconds": terms.lease_seconds,
                "evidence_window": terms.evidence_window,
                "unknown_budget": terms.unknown_budget,
                "closing": sorted(CLOSING_OUTCOMES),
                "limit": limit,
            },
        ).fetchall()


def has_due_work(database: Database, terms: ClaimTerms, position: Position = BEGINNING) -> bool:
    """Whether a claim would find something now."""
    with database.transaction() as tx:
        row = tx.execute(
            SQL["has_due_work"], {**_position(position), **_providers(terms), "route": terms.route}
        ).fetchone()
    return bool(row and row["due"])


def hand_over(
    database: Database,
    lease: Lease,
    digest: bytes,
    *,
    key: str | None,
    lease_seconds: float,
    release: str | None,
) -> bool:
    """Stamp the hand-over just before the provider could accept. False: send nothing (the lease, the gate or the bytes
    are no longer what they were).

    `key` is the idempotency key the provider will see. Raises DatabaseUnavailable: also then, nothing may be sent.
    """
    with database.transaction() as tx:
        stamped = tx.execute(
            SQL["hand_over"],
            {
                "id": lease.delivery_id,
                "owner": lease.owner,
                "lease_token": lease.token,
                "lease_seconds": lease_seconds,
                "provider": lease.provider,
                "digest": digest,
                "idempotency_key": key,
                "claimed_at": lease.claimed_at,
                "correlation_id": lease.correlation_id,
                "release": release,
            },
        ).fetchone()
    return stamped is not None


def settle(
    database: Database,
    lease: Lease,
    result: AttemptResult,
    policy: Policy,
    *,
    refusal: Refusal | None = None,
    release: str | None = None,
) -> Settled:
    """Record what a lease came to: row and attempt together, and the provider's pause with them.

    A result whose lease has ended changes no row, unless it is acceptance (evidence) or `not_sent` by the holder. Safe to
    repeat after CommitUnknown.
    """
    found = lease.action == "look_up" and result.outcome is Outcome.ACCEPTED
    evidence = Evidence.LOOKUP if found else Evidence.RESPONSE
    if found:  # this lease sent nothing; it found what an earlier one had sent
        result = replace(result, outcome=Outcome.NOT_SENT, error_code="lookup_found")
    with database.transaction() as tx:
        facts = deliveries.lock(tx, lease.delivery_id)
        held = _holds(facts, lease, result.outcome)
        if not held and _recorded(facts, lease) is result.outcome:
            return Settled(facts.delivery.status)  # an earlier try whose answer was lost
        deliveries.record_attempt(tx, facts, _attempt_of(lease, release), result, stale=not held)
        state = facts.delivery.status
        if found or (result.outcome is Outcome.ACCEPTED and not held):
            if state is not State.ACCEPTED:
                state = _move(tx, facts, rules.accept(evidence), result)
        elif held:
            to = rules.settle(
                facts,
                lease.token,
                result,
                policy,
                begun_with_open=lease.payload_digest is not None,
                pauses=refusal is not None,
            )
            state = _move(tx, facts, to, result)
        if held:
            _note_provider(tx, lease, result, refusal)
    return Settled(state, stale=not held)


def _note_provider(tx: Tx, lease: Lease, result: AttemptResult, refusal: Refusal | None) -> None:
    """What the result says of the provider; one that came late says nothing of it now."""
    if refusal is not None:
        provider_pauses.pause(tx, lease.provider, lease.sender, refusal, refused_after=lease.claimed_at)
    elif lease.is_probe and _provider_spoke(lease, result):
        provider_pauses.clear(tx, lease.provider, lease.sender)


def _provider_spoke(lease: Lease, result: AttemptResult) -> bool:
    """Whether the provider itself answered, and not somebody on the way to it (a template error, say)."""
    if lease.action == "look_up":
        return result.error_code in {"lookup_found", "lookup_not_found"}
    return result.outcome is Outcome.ACCEPTED or (
        result.outcome in {Outcome.TRANSIENT, Outcome.PERMANENT} and result.response_status is not None
    )


def _holds(facts: Facts, lease: Lease, outcome: Outcome) -> bool:
    """The fence: same owner, same token, still leased. `not_sent` may come after the lease's end (it undoes nothing)."""
    delivery = facts.delivery
    return (
        delivery.status is State.SENDING
        and delivery.lease_owner == lease.owner
        and delivery.lease_token == lease.token
        and delivery.lease_until is not None
        and (facts.now < delivery.lease_until or outcome is Outcome.NOT_SENT)
    )


def _recorded(facts: Facts, lease: Lease) -> Outcome | None:
    return next((a.outcome for a in facts.attempts if a.lease_token == lease.token), None)


def _move(tx: Tx, facts: Facts, to: Move, result: AttemptResult) -> State:
    return deliveries.move(
        tx,
        facts.delivery,
        to,
        last_error=result.error_code,
        provider_message_id=result.provider_message_id,
    )


def _attempt_of(lease: Lease, release: str | None) -> dict[str, Any]:
    return {
        "id": lease.delivery_id,
        "lease_token": lease.token,
        "owner": lease.owner,
        "claimed_at": lease.claimed_at,
        "provider": lease.provider,
        "correlation_id": lease.correlation_id,
        "release": release,
    }


def _position(position: Position) -> dict[str, Any]:
    return {
        "pending_from_at": position.pending[0],
        "pending_from_id": position.pending[1],
        "unknown_from_at": position.unknown[0],
        "unknown_from_id": position.unknown[1],
    }


def _providers(terms: ClaimTerms) -> dict[str, Any]:
    return {
        "providers": [provider.name for provider in terms.providers],
        "can_look_up": [provider.can_look_up for provider in terms.providers],
        "replay_windows": [provider.replay_window for provider in terms.providers],
        "sender": terms.sender,
    }


def _lease(row: Row, sender: str) -> Lease:
    return Lease(
        delivery_id=row["id"],
        verification_id=row["verification_id"],
        client_id=row["client_id"],
        owner=row["lease_owner"],
        token=row["lease_token"],
        route=row["route"],
        action=row["action"],
        provider=row["provider"],
        sender=sender,
        is_probe=row["is_probe"],
        claimed_at=row["claimed_at"],
        due_at=row["due_at"],
        attempt_count=row["attempt_count"],
        payload_digest=row["payload_digest"],
        recipient=row["recipient"],
        purpose=row["purpose"],
        locale=row["locale"],
        template_version=row["template_version"],
        branding_id=row["branding_id"],
        token_key_id=row["token_key_id"],
        token_nonce=row["token_nonce"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        correlation_id=row["correlation_id"],
    )
