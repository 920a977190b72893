"""Forgetting whom a verification was about, once it has been over for the retention.

Each batch is one short transaction that takes what nobody holds; the sweep goes on from batch to batch. Ids, status, times
and the keyed fingerprint stay: they answer a repeated request and explain a mail, and lead to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from db.queries import load
from db.session import Database

_SQL = load("retention.sql")

BATCH = 200  # rows in one transaction: tens of milliseconds


@dataclass(frozen=True, slots=True)
class Batch:
    """How many a batch looked at and anonymised, and where the next one starts."""

    seen: int = 0
    anonymised: int = 0
    after: tuple[datetime, UUID] = (datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))


def anonymise(
    database: Database, *, retention: float, after: Batch | None = None, limit: int = BATCH
) -> Batch:
    """Anonymise finished verifications whose last change is `retention` seconds old. Raises DatabaseUnavailable."""
    start = (after or Batch()).after
    with database.transaction() as tx:
        rows = tx.execute(
            _SQL["find_finished"],
            {"retention": retention, "after_at": start[0], "after_id": start[1], "limit": limit},
        ).fetchall()
        over = {"ids": [row["id"] for row in rows if row["is_over"]]}
        forgotten = {"ids": [row["id"] for row in tx.execute(_SQL["anonymise_verifications"], over)]}
        tx.execute(_SQL["forget_events"], forgotten)
        tx.execute(_SQL["forget_operators"], forgotten)
    end = (rows[-1]["created_at"], rows[-1]["id"]) if rows else start
    return Batch(len(rows), len(forgotten["ids"]), end)


def forget_suppressions(database: Database, *, retention: float, limit: int = BATCH) -> int:
    """Delete a batch of suppressions that ran out `retention` seconds ago. Answers how many."""
    with database.transaction() as tx:
        return len(
            tx.execute(_SQL["delete_suppressions"], {"retention": retention, "limit": limit}).fetchall()
        )
