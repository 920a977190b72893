"""The outbox as operators see it: how much there is, what waits, and which delivery is meant."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from db import ids
from db.delivery_state import State
from db.errors import NotFound
from db.queries import load
from db.session import Database, Row
from db.views import mask

_SQL = load("outbox.sql")


@dataclass(frozen=True, slots=True)
class PausedProvider:
    """A provider that takes no mail until `paused_until`, and why."""

    provider: str
    kind: str
    code: str
    paused_until: datetime


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts by state, and ages in seconds (None: there is none)."""

    counts: dict[State, int]
    oldest_due_seconds: float | None
    oldest_ended_lease_seconds: float | None
    oldest_unknown_seconds: float | None
    oldest_unknown_id: UUID | None
    paused: tuple[PausedProvider, ...]
    oscillating: int


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of a list. `send_before` is None once the gate was closed early."""

    id: UUID
    verification_id: UUID
    status: State
    attempt_count: int
    lease_token: int
    next_attempt_at: datetime | None
    send_before: datetime | None
    last_error: str | None
    failure_category: str | None
    failure_code: str | None
    provider: str | None
    created_at: datetime
    completed_at: datetime | None
    client: str
    is_test: bool
    account_id: str
    email_masked: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which deliveries to list; None: whichever. `more_leases_than`: unfinished ones that oscillate."""

    status: State | None = None
    client: str | None = None
    account: str | None = None
    since: datetime | None = None
    more_leases_than: int | None = None


def stats(database: Database, oscillation_limit: int) -> Stats:
    """Where all deliveries are, and how many unfinished ones had more leases than the limit.

    Counts every row: for a person, not for a poller.
    """
    with database.transaction() as tx:
        counts_cursor = tx.execute(_SQL["count_by_status"])
        oscillating_cursor = tx.execute(_SQL["count_oscillating"], {"limit": oscillation_limit})
        backlog_cursor = tx.execute(_SQL["read_backlog"])
        pauses_cursor = tx.execute(_SQL["list_pauses"])
        oscillating = oscillating_cursor.fetchone()
        assert oscillating is not None, "a count"
        counts = {State(row["status"]): row["count"] for row in counts_cursor}
        backlog = backlog_cursor.fetchone()
        assert backlog is not None, "one row, whatever there is"
        paused = tuple(PausedProvider(**row) for row in pauses_cursor)
    return Stats({state: counts.get(state, 0) for state in State}, **backlog, **oscillating, paused=paused)


def newest(database: Database, wanted: Wanted, limit: int) -> list[Listed]:
    """The newest deliveries among those wanted."""
    with database.transaction() as tx:
        rows = tx.execute(_SQL["list_deliveries"], {**asdict(wanted), "limit": limit}).fetchall()
    return [_listed(row) for row in rows]


def find(database: Database, public_id: str) -> UUID:
    """The verification that `ver_…` or `dlv_…` means. Raises NotFound."""
    verification_id: UUID = _find(database, public_id)["verification_id"]
    return verification_id


def find_delivery(database: Database, public_id: str) -> UUID:
    """The delivery that either means. Raises NotFound."""
    delivery_id: UUID = _find(database, public_id)["id"]
    return delivery_id


def _find(database: Database, public_id: str) -> Row:
    parsed = ids.parse("ver", public_id) or ids.parse("dlv", public_id)
    if parsed is None:
        raise NotFound("an id looks like ver_… or dlv_… and 32 hex digits")
    with database.transaction() as tx:
        row = tx.execute(_SQL["find_verification"], {"id": parsed}).fetchone()
    if row is None:
        raise NotFound(f"there is no {public_id}")
    return row


def _listed(row: Row) -> Listed:
    closed_early = row.pop("gate_reason") is not None
    read = {
        "status": State(row["status"]),
        "send_before": None if closed_early else row["send_before"],
        "email_masked": mask(row.pop("email")),
    }
    return Listed(**{**row, **read})
