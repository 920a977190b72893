"""Mailboxes that a client's mail must not reach: what waits for one ends as failed/suppressed, and nothing is replayed to it.

`email_canonical` is the form in which addresses are compared (app.addresses); addresses leave here masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from db import clients
from db.ids import new_id
from db.queries import load
from db.session import Database, Row
from db.views import mask

_SQL = load("suppressions.sql")


@dataclass(frozen=True, slots=True)
class Suppression:
    """One mailbox of one client; `expires_at` None: for good."""

    client: str
    email_masked: str
    reason: str
    created_at: datetime
    expires_at: datetime | None


def add(
    database: Database, client: str, email_canonical: str, reason: str, *, seconds: float | None = None
) -> tuple[Suppression, bool]:
    """Suppress a mailbox, for good or for `seconds`; and whether it was not before. Raises NotFound."""
    values = {"id": new_id(), "email_canonical": email_canonical, "reason": reason, "seconds": seconds}
    client_id = clients.named(database, client).id
    with database.transaction() as tx:
        row = tx.execute(_SQL["add_suppression"], {**values, "client_id": client_id}).fetchone()
    assert row is not None, "INSERT … RETURNING"
    is_new: bool = row.pop("is_new")
    return _suppression({**row, "client": client}), is_new


def remove(database: Database, client: str, email_canonical: str) -> bool:
    """Let mail go there again; whether it was suppressed. What has failed meanwhile stays so. Raises NotFound."""
    client_id = clients.named(database, client).id
    with database.transaction() as tx:
        values = {"client_id": client_id, "email_canonical": email_canonical}
        return tx.execute(_SQL["remove_suppression"], values).fetchone() is not None


def newest(
    database: Database, client: str | None, email_canonical: str | None, limit: int
) -> list[Suppression]:
    """The newest, of one client and one mailbox or of all. Raises NotFound."""
    client_id: UUID | None = clients.named(database, client).id if client is not None else None
    with database.transaction() as tx:
        values = {"client_id": client_id, "email_canonical": email_canonical, "limit": limit}
        return [_suppression(row) for row in tx.execute(_SQL["list_suppressions"], values)]


def _suppression(row: Row) -> Suppression:
    return Suppression(
        client=row["client"],
        email_masked=mask(row["email_canonical"]),
        reason=row["reason"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )
