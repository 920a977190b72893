"""Finds and mends what should not be, whoever brought it about: a damaged restore, a hand in the tables, a fault of ours.

Each row is mended in a transaction of its own, under the locks of account, verification and delivery, after having been asked
about once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from uuid import UUID

from db import deliveries, operations
from db.consumption import PURPOSES
from db.delivery_state import CLOSING_OUTCOMES, Evidence, GateReason, Outcome
from db.phases import Status
from db.queries import load
from db.session import Database, Row, Tx

_SQL = load("repair.sql")
_PAGE = 1000  # deliveries looked at by one statement, a few milliseconds
_FIRST = UUID(int=0)
Mend = Callable[[Tx, UUID], None]


def run(database: Database, *, dry_run: bool = False) -> dict[str, list[UUID]]:
    """By kind, the deliveries that were mended, or would be. Raises DatabaseUnavailable."""
    found: dict[str, list[UUID]] = {kind: [] for kind in KINDS}
    for page in _pages(database):
        for kind, so_far in found.items():
            so_far.extend(_mend_page(database, kind, page, dry_run=dry_run))
    return found


def _pages(database: Database) -> Iterator[list[UUID]]:
    after = _FIRST
    while True:
        with database.transaction() as tx:
            rows = tx.execute(_SQL["read_page"], {"after": after, "limit": _PAGE}).fetchall()
        if not rows:
            return
        yield [row["id"] for row in rows]
        after = rows[-1]["id"]


def _mend_page(database: Database, kind: str, page: list[UUID], *, dry_run: bool) -> Iterator[UUID]:
    with database.transaction() as tx:
        found = _find(tx, kind, page)
    for delivery_id in found:
        if dry_run or _mend(database, kind, delivery_id):
            yield delivery_id


def _find(tx: Tx, kind: str, among: list[UUID]) -> list[UUID]:
    names = {"ids": among, "closing": sorted(CLOSING_OUTCOMES)}
    return [row["id"] for row in tx.execute(_SQL[KINDS[kind][0]], names).fetchall()]


def _mend(database: Database, kind: str, delivery_id: UUID) -> bool:
    """False: somebody else was quicker."""
    with database.transaction() as tx:
        operations.lock_for_delivery(tx, delivery_id)
        if not _find(tx, kind, [delivery_id]):
            return False
        KINDS[kind][1](tx, delivery_id)
    return True


def _verification(tx: Tx, delivery_id: UUID) -> Row:
    row = tx.execute(_SQL["read_verification"], {"id": delivery_id}).fetchone()
    assert row is not None, "a delivery has a verification"
    return row


def _activate(tx: Tx, delivery_id: UUID) -> None:
    names = {"id": delivery_id, "setting": [p for p, does in PURPOSES.items() if does.sets_address]}
    tx.execute(_SQL["activate_account"], names)


_REASONS = {Status.SUPERSEDED: GateReason.SUPERSEDED, Status.CANCELLED: GateReason.CANCELLED}


def _close_gate(tx: Tx, delivery_id: UUID) -> None:
    status = Status(_verification(tx, delivery_id)["status"])
    facts = deliveries.lock(tx, delivery_id)
    if status is Status.CONSUMED:
        deliveries.consume(tx, facts)
    else:
        deliveries.close_gate(tx, facts, _REASONS[status])


def _hold_open(tx: Tx, delivery_id: UUID) -> None:
    facts = deliveries.lock(tx, delivery_id)
    tx.execute(_SQL["hold_open"], {"id": delivery_id, "provider": facts.open_attempts[0].provider})


def _make_due(tx: Tx, delivery_id: UUID) -> None:
    tx.execute(_SQL["make_due"], {"id": delivery_id})


def _accept(tx: Tx, delivery_id: UUID) -> None:
    facts = deliveries.lock(tx, delivery_id)
    provider = next(a.provider for a in facts.attempts if a.outcome is Outcome.ACCEPTED)
    deliveries.record_evidence(tx, facts, Evidence.RESPONSE, provider=provider)


# What is counted -> how it is found, and what is done about it. In this order: a gate that closes on a waiting delivery
# ends it, whatever it has forgotten.
KINDS: Mapping[str, tuple[str, Mend]] = MappingProxyType(
    {
        "accounts_not_activated": ("find_inactive_accounts", _activate),
        "hand_overs_forgotten": ("find_forgotten_hand_overs", _hold_open),
        "gates_left_open": ("find_open_gates", _close_gate),
        "unknown_though_answered": ("find_answered_unknowns", _make_due),
        "acceptances_unrecorded": ("find_unrecorded_acceptances", _accept),
    }
)
