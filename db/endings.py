"""Verifications that end without being used: expired, superseded or cancelled. Each closes the delivery's gate."""

from __future__ import annotations

from uuid import UUID

from db import deliveries, receipts
from db.delivery_state import GateReason
from db.errors import NotCancellable
from db.phases import CancelledBy, Status
from db.queries import load
from db.session import Database, Tx
from db.views import Verification

_SQL = load("endings.sql")


def cancel(
    database: Database, client_id: UUID | None, verification_id: UUID, *, by: CancelledBy
) -> Verification:
    """End a verification that is still requested; one that has ended otherwise is answered as it is.

    `client_id` None: an operator's, whoever's it is. Raises NotFound, NotCancellable, DatabaseUnavailable.
    """
    names = {"id": verification_id, "client_id": client_id}
    with database.transaction() as tx:
        tx.execute(_SQL["lock_account_of_verification"], names)
        found = tx.execute(_SQL["read_status"], names).fetchone()
        if found is not None and found["status"] == Status.CONSUMED:
            raise NotCancellable
        if found is not None and found["status"] == Status.REQUESTED:
            if found["is_overdue"]:
                expire(tx, verification_id)
            else:
                cancel_requested(tx, verification_id, by=by)
        return receipts.read_in(tx, client_id, verification_id)


def expire(tx: Tx, verification_id: UUID) -> None:
    """Its time is over. The delivery needs no write: its gate closed earlier. The caller holds the account."""
    tx.execute(_SQL["expire"], {"id": verification_id})


def supersede(tx: Tx, verification_id: UUID, successor: UUID) -> None:
    """A newer one takes its place in this transaction. The caller holds the account."""
    tx.execute(_SQL["supersede"], {"id": verification_id, "superseded_by": successor})
    _close_gate(tx, verification_id, GateReason.SUPERSEDED)


def cancel_requested(tx: Tx, verification_id: UUID, *, by: CancelledBy) -> None:
    """Nobody wants it. The caller holds the account and has seen that it is requested."""
    tx.execute(_SQL["cancel"], {"id": verification_id, "cancelled_by": by})
    _close_gate(tx, verification_id, GateReason.CANCELLED)


def _close_gate(tx: Tx, verification_id: UUID, reason: GateReason) -> None:
    deliveries.close_gate(tx, deliveries.lock_of_verification(tx, verification_id), reason)
