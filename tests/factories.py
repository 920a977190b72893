"""Makes verifications and deliveries in any state, through the product's own functions, and moves time without waiting."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from db import clients, deliveries, ids, leases, overdue
from db.delivery_rules import AttemptResult, ProviderTraits
from db.delivery_state import FailureCategory, GateReason, Outcome, State
from db.leases import ClaimTerms, Lease
from db.session import Database
from tasks.delivery import Courier
from tasks.retry_policy import RetryPolicy

SMTP = ProviderTraits("smtp/one.example.com", can_look_up=False, replay_window=0.0)
KEYED = ProviderTraits("keyed/two.example.com", can_look_up=False, replay_window=86_400.0)
SEARCHABLE = ProviderTraits("searchable/three.example.com", can_look_up=True, replay_window=0.0)
SENDER = "verify@countersign.example"
DIGEST = b"\x01" * 32
LEASE_SECONDS = 90.0


def policy(*providers: ProviderTraits, **overrides: Any) -> RetryPolicy:
    """The default budgets, without jitter."""
    return replace(
        RetryPolicy(
            max_attempts=6,
            backoff=(60.0, 300.0, 900.0),
            unknown_budget=3,
            unknown_backoff=(30.0, 120.0, 600.0),
            evidence_window=1800.0,
            providers=providers or (SMTP,),
            jitter=lambda: 0.0,
        ),
        **overrides,
    )


def terms(*providers: ProviderTraits, owner: str = "host:1:0") -> ClaimTerms:
    """What a worker of the default settings claims with."""
    return ClaimTerms(
        route="live",
        owner=owner,
        lease_seconds=LEASE_SECONDS,
        sender=SENDER,
        providers=providers or (SMTP,),
        evidence_window=1800.0,
        unknown_budget=3,
    )


@dataclass(frozen=True, slots=True)
class Made:
    """The ids of what was made."""

    client_id: UUID
    account_id: UUID
    verification_id: UUID
    delivery_id: UUID


class Factory:
    """Rows in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.client_id: UUID | None = None

    def client(self) -> UUID:
        """One client, made at the first call."""
        if self.client_id is None:
            made = clients.create(self.database, "host")
            self.client_id, self._key = made.client.id, made.key
        return self.client_id

    def key(self) -> str:
        """Its API key."""
        self.client()
        return self._key

    def waiting(
        self,
        *,
        email: str = "person@example.com",
        purpose: str = "signup",
        send_before: float = 14_400.0,
        expires_in: float = 86_400.0,
    ) -> Made:
        """A `requested` verification whose delivery is due. `send_before` and `expires_in` in seconds from now."""
        made = Made(self.client(), ids.new_id(), ids.new_id(), ids.new_id())
        with self.database.transaction() as tx:
            tx.execute(
                "INSERT INTO accounts (id, client_id, external_id) VALUES (%s, %s, %s)",
                [made.account_id, made.client_id, made.account_id.hex],
            )
            tx.execute(
                """
                INSERT INTO verifications (id, client_id, account_id, purpose, email, email_canonical, token_key_id,
                    token_nonce, token_hash, template_version, idempotency_key, fingerprint, correlation_id, created_at,
                    expires_at)
                VALUES (%s, %s, %s, %s, %s, %s, 'k1', %s, %s, 1, %s, '', %s, clock_timestamp() - interval '1 second',
                    clock_timestamp() + make_interval(secs => %s))
                """,
                [
                    made.verification_id,
                    made.client_id,
                    made.account_id,
                    purpose,
                    email,
                    email,
                    secrets.token_bytes(16),
                    secrets.token_bytes(32),
                    made.verification_id.hex,
                    f"req_{made.verification_id.hex}",
                    expires_in,
                ],
            )
            tx.execute(
                """
                INSERT INTO email_outbox (id, verification_id, client_id, next_attempt_at, send_before)
                VALUES (%s, %s, %s, clock_timestamp(), clock_timestamp() + make_interval(secs => %s))
                """,
                [made.delivery_id, made.verification_id, made.client_id, send_before],
            )
        return made

    def leased(self, *providers: ProviderTraits, owner: str = "host:1:0", **waiting: Any) -> Lease:
        """A delivery that a worker has just claimed."""
        made = self.waiting(**waiting)
        return self.claim(made.delivery_id, *providers, owner=owner)

    def claim(self, delivery_id: UUID, *providers: ProviderTraits, owner: str = "host:1:0") -> Lease:
        """Claim until this delivery is leased."""
        while claimed := leases.claim(self.database, terms(*providers, owner=owner)):
            if claimed[0].delivery_id == delivery_id:
                return claimed[0]
        raise AssertionError(f"not claimable: {self.row(delivery_id)}")

    def claim_by(self, courier: Courier, route: str = "live") -> Lease:
        """What this courier claims next on a route."""
        (lease,) = leases.claim(self.database, courier.routes[route].terms("host:1:0"))
        return lease

    def handed_over(self, *providers: ProviderTraits, owner: str = "host:1:0", **waiting: Any) -> Lease:
        """A delivery whose lease holder is about to send."""
        lease = self.leased(*providers, owner=owner, **waiting)
        assert self.hand_over(lease)
        return lease

    def hand_over(self, lease: Lease, digest: bytes = DIGEST) -> bool:
        """Hand over with the default settings."""
        return leases.hand_over(
            self.database, lease, digest, key=None, lease_seconds=LEASE_SECONDS, release=None
        )

    def unknown(self, *providers: ProviderTraits, **waiting: Any) -> Lease:
        """A delivery whose provider did not answer."""
        lease = self.handed_over(*providers, **waiting)
        settled = self.settle(lease, Outcome.UNKNOWN, "smtp_timeout")
        assert settled.state is State.UNKNOWN
        return lease

    def settle(
        self, lease: Lease, outcome: Outcome, code: str | None = None, **overrides: Any
    ) -> leases.Settled:
        """Settle with the default policy."""
        category = FailureCategory.RECIPIENT if outcome is Outcome.PERMANENT else None
        result = AttemptResult(outcome, code, category)
        return leases.settle(self.database, lease, result, overrides.pop("policy", policy()), **overrides)

    def in_state(self, state: State) -> UUID:
        """The id of a delivery in `state`, reached as the product reaches it."""
        made = {
            State.PENDING: lambda: self.waiting().delivery_id,
            State.SENDING: lambda: self.handed_over().delivery_id,
            State.UNKNOWN: lambda: self.unknown().delivery_id,
            State.ACCEPTED: lambda: self._ended(Outcome.ACCEPTED),
            State.FAILED: lambda: self._ended(Outcome.PERMANENT),
            State.EXPIRED: lambda: self._gate_closed(GateReason.SUPERSEDED),
            State.CANCELLED: lambda: self._gate_closed(GateReason.CANCELLED),
        }[state]()
        assert self.row(made)["status"] == state
        return made

    def close_gate(self, delivery_id: UUID, reason: GateReason) -> State:
        """Close a delivery's gate as supersede, cancel and consume do."""
        with self.database.transaction() as tx:
            return deliveries.close_gate(tx, deliveries.lock(tx, delivery_id), reason)

    def reclaim(self, **overrides: Any) -> int:
        """Take back the leases that ran out."""
        return overdue.reclaim_lost(
            self.database, overrides.pop("policy", policy()), lease_seconds=LEASE_SECONDS
        )

    def row(self, delivery_id: UUID) -> dict[str, Any]:
        """The `email_outbox` row."""
        return self.one("SELECT * FROM email_outbox WHERE id = %s", delivery_id)

    def attempts(self, delivery_id: UUID) -> list[dict[str, Any]]:
        """The attempts, oldest first."""
        return self.all(
            "SELECT * FROM delivery_attempts WHERE delivery_id = %s ORDER BY lease_token", delivery_id
        )

    def pass_time(self, delivery_id: UUID, **interval: float) -> None:
        """Let time pass for one delivery and its attempts: their times move back; the mail's own stay."""
        past = timedelta(**interval)
        with self.database.transaction() as tx:
            tx.execute(
                """
                UPDATE email_outbox SET lease_until = lease_until - %(past)s,
                    next_attempt_at = next_attempt_at - %(past)s,
                    send_before = CASE WHEN gate_reason IS NULL THEN send_before - %(past)s ELSE send_before END,
                    created_at = created_at - %(past)s, completed_at = completed_at - %(past)s
                WHERE id = %(id)s
                """,
                {"past": past, "id": delivery_id},
            )
            tx.execute(
                """
                UPDATE delivery_attempts SET started_at = started_at - %(past)s,
                    handed_over_at = handed_over_at - %(past)s, finished_at = finished_at - %(past)s
                WHERE delivery_id = %(id)s
                """,
                {"past": past, "id": delivery_id},
            )

    def execute(self, statement: Any, *parameters: Any) -> None:
        with self.database.transaction() as tx:
            tx.execute(statement, parameters or None)

    def execute_named(self, statement: Any, parameters: dict[str, Any]) -> None:
        with self.database.transaction() as tx:
            tx.execute(statement, parameters)

    def one(self, statement: Any, *parameters: Any) -> dict[str, Any]:
        rows = self.all(statement, *parameters)
        assert len(rows) == 1, rows
        return rows[0]

    def all(self, statement: Any, *parameters: Any) -> list[dict[str, Any]]:
        with self.database.transaction() as tx:
            return tx.execute(statement, parameters or None).fetchall()

    def _ended(self, outcome: Outcome) -> UUID:
        lease = self.handed_over()
        self.settle(lease, outcome, "mailbox_unavailable" if outcome is Outcome.PERMANENT else None)
        return lease.delivery_id

    def _gate_closed(self, reason: GateReason) -> UUID:
        made = self.waiting()
        self.close_gate(made.delivery_id, reason)
        return made.delivery_id
