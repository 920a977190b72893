"""The feed of state changes: every transition but claims, each once, in an order that never changes afterwards.

Ids are given before the commit, so a smaller one can appear later. Numbers are given after it, by the sweep or by whoever
reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from db import plans
from db.queries import load
from db.session import Database, Row

_SQL = load("changes.sql")

NUMBERED_AT_ONCE = 1000  # tens of milliseconds under the counter's lock
LARGEST_PLACE = 2**63 - 1
_ROUNDS = 5  # that a reader numbers before it answers what it has


class AheadOfFeed(ValueError):
    """The place lies behind the last change there is: it is from another database, or from before a restore."""


@dataclass(frozen=True, slots=True)
class FeedChange:
    """A transition of a verification (`delivery_id` is None) or of its delivery; `before` None: it was created.

    `seq` is its place in the feed.
    """

    seq: int
    at: datetime
    verification_id: UUID
    delivery_id: UUID | None
    account_id: str
    purpose: str
    before: str | None
    after: str
    code: str | None
    evidence: str | None


@dataclass(frozen=True, slots=True)
class FeedPage:
    """`end` is the place to go on from. `has_more`: another read right now would find more, or may."""

    items: tuple[FeedChange, ...]
    end: int
    has_more: bool


def number(database: Database, *, limit: int = NUMBERED_AT_ONCE) -> int:
    """Number up to `limit` committed state changes; answers how many. Fewer than `limit`: none was left."""
    with database.transaction() as tx:
        tx.execute("SELECT 1 FROM change_counter FOR UPDATE")
        row = tx.execute(_SQL["number_changes"], {"limit": limit}).fetchone()
    return int(row["numbered"]) if row else 0


def read(
    database: Database, client_id: UUID, *, after: int, limit: int, numbered_at_once: int = NUMBERED_AT_ONCE
) -> FeedPage:
    """The client's changes after a place (0: from the beginning), oldest first.

    What was committed before the call is in the answer, unless `has_more`. Raises AheadOfFeed, DatabaseUnavailable.
    """
    counter, rows = _read(database, client_id, after, limit)
    has_unnumbered = counter["has_unnumbered"]
    for _ in range(_ROUNDS):
        # A full page needs no number, and its reader waits for nobody.
        if len(rows) > limit or not has_unnumbered:
            break
        has_unnumbered = number(database, limit=numbered_at_once) == numbered_at_once
        counter, rows = _read(database, client_id, after, limit)
    if after > counter["seq"]:
        raise AheadOfFeed
    items = tuple(map(_change, rows[:limit]))
    return FeedPage(items, items[-1].seq if items else after, len(rows) > limit or has_unnumbered)


def _read(database: Database, client_id: UUID, after: int, limit: int) -> tuple[Row, Sequence[Row]]:
    """The counter, then a page and one row more: what the counter's snapshot knew, the page's knows too."""
    names: dict[str, Any] = {"client_id": client_id, "after": after, "limit": limit + 1}
    with database.transaction() as tx:
        plans.follow_indexes(tx)
        counter_cursor = tx.execute(_SQL["read_counter"])
        page_cursor = tx.execute(_SQL["read_changes"], names)
        counter = counter_cursor.fetchone()
        assert counter is not None, "the migration made the one row"
        return counter, page_cursor.fetchall()


def _change(row: Row) -> FeedChange:
    return FeedChange(
        seq=row["seq"],
        at=row["at"],
        verification_id=row["verification_id"],
        delivery_id=row["delivery_id"],
        account_id=row["external_id"],
        purpose=row["purpose"],
        before=row["before"],
        after=row["after"],
        code=row["code"],
        evidence=row["evidence"],
    )
