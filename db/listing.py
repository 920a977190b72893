"""Pages of a client's verifications, newest first, by filters that an index serves each.

Filters that no one index serves together are tried on a bounded number of rows a page, so a page may hold fewer than asked
for, or none, while there is a next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any
from uuid import UUID

from db import plans, receipts
from db.delivery_state import State
from db.phases import Status
from db.queries import load
from db.session import Database, Row
from db.views import Verification

_SQL = load("listing.sql")
_SCANNED_AT_MOST = 1000  # rows a page looks at in vain: some milliseconds


class Order(StrEnum):
    """By which time the newest comes first."""

    CREATED = "created"
    CONSUMED = "consumed"


@dataclass(frozen=True, slots=True)
class Filter:
    """What the verifications of a page have in common. `consumed_since` is inclusive, and orders by consumption."""

    verification_status: Status | None = None
    delivery_status: State | None = None
    account_id: str | None = None
    consumed_since: datetime | None = None

    @property
    def order(self) -> Order:
        return Order.CREATED if self.consumed_since is None else Order.CONSUMED


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page ended: the next one begins with what is older than this."""

    order: Order
    at: datetime
    id: UUID


@dataclass(frozen=True, slots=True)
class Page:
    """`end` is None when nothing is left."""

    items: tuple[Verification, ...]
    end: Position | None


def read_page(
    database: Database, client_id: UUID, wanted: Filter, *, after: Position | None, limit: int
) -> Page:
    """Up to `limit` verifications of the client that pass `wanted`. `after` must be of the same order."""
    assert after is None or after.order is wanted.order, "a position belongs to its order"
    most = _SCANNED_AT_MOST if _is_compound(wanted) else limit + 1
    names: dict[str, Any] = {
        "client_id": client_id,
        "verification_status": wanted.verification_status,
        "delivery_status": wanted.delivery_status,
        "account_id": wanted.account_id,
        "consumed_since": wanted.consumed_since,
        "after_at": after.at if after else "infinity",
        "after_id": after.id if after else UUID(int=2**128 - 1),
        "most": most,
    }
    with database.transaction() as tx:
        plans.follow_indexes(tx)
        rows = tx.execute(_SQL[_query(wanted)], names).fetchall()
        picked = list(islice((row for row in rows if row["matches"]), limit))
        found = receipts.read_many_in(tx, client_id, [row["id"] for row in picked]) if picked else {}
    # What moved on between the two statements no longer passes.
    items = tuple(found[row["id"]] for row in picked if _passes(found[row["id"]], wanted))
    end = _end(rows, picked, limit, most)
    return Page(items, Position(wanted.order, end["at"], end["id"]) if end else None)


def _query(wanted: Filter) -> str:
    """The index to walk. Of two statuses the one that few verifications have at a time."""
    if wanted.account_id is not None:
        return "page_of_account" if wanted.consumed_since is None else "page_consumed_of_account"
    if wanted.consumed_since is not None:
        return "page_consumed"
    if wanted.delivery_status is not None and wanted.verification_status is not Status.REQUESTED:
        return "page_by_delivery_status"
    if wanted.verification_status is not None:
        return "page_by_verification_status"
    return "page_by_delivery_status" if wanted.delivery_status is not None else "page_of_client"


def _is_compound(wanted: Filter) -> bool:
    """Whether rows of the index may fail the other filters; an account's consumed ones are one index's, too."""
    statuses = [wanted.verification_status, wanted.delivery_status]
    by_index = wanted.account_id is not None or wanted.consumed_since is not None
    return len([status for status in statuses if status is not None]) + by_index > 1


def _passes(found: Verification, wanted: Filter) -> bool:
    return wanted.verification_status in {None, found.status} and wanted.delivery_status in {
        None,
        found.delivery_status,
    }


def _end(rows: Sequence[Row], picked: Sequence[Row], limit: int, most: int) -> Row | None:
    """The row after which the next page begins; None when this one is the last."""
    unread = len(rows) == most
    if len(picked) < limit:
        return rows[-1] if unread else None
    rest = rows[rows.index(picked[-1]) + 1 :]
    return picked[-1] if unread or any(row["matches"] for row in rest) else None
