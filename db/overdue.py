"""What time alone brings about: leases that ran out, gates and evidence windows that closed, tokens that expired.

Each function handles one batch in one short transaction and answers how many rows it moved; the sweep calls it until
it answers less than its limit. Batches skip rows that others hold and re-check their predicate under the lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from db import deliveries, ids, provider_pauses
from db import delivery_rules as rules
from db.deliveries import SQL
from db.delivery_rules import Facts, Policy, ProviderTraits
from db.delivery_state import CLOSING_OUTCOMES, State
from db.logs import get_logger
from db.session import Database, Row, Tx

log = get_logger(__name__)

BATCH = 100  # rows locked together: a few milliseconds


@dataclass(frozen=True, slots=True)
class UnknownTerms:
    """Whose unknown outcomes, and what decides whether one may still be replayed. Times in seconds."""

    route: str
    providers: Sequence[ProviderTraits]
    sender: str
    unknown_budget: int


@dataclass(frozen=True, slots=True)
class Batch:
    """How many rows a batch looked at and moved, and where the next one starts."""

    seen: int
    moved: int
    after: tuple[datetime, UUID] = (datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))


def reclaim_lost(database: Database, policy: Policy, *, lease_seconds: float, limit: int = BATCH) -> int:
    """sending -> back, for leases that ran out. Answers how many."""
    with database.transaction() as tx:
        rows = tx.execute(SQL["lock_lost_leases"], {"limit": limit}).fetchall()
        for facts in deliveries.read_facts(tx, rows):
            tx.execute(SQL["record_loss"], {"id": facts.delivery.id, "lease_seconds": lease_seconds})
            deliveries.move(tx, facts.delivery, rules.reclaim(facts, policy), last_error="lease_lost")
    return len(rows)


def end_overdue_pending(
    database: Database, providers: Mapping[str, Sequence[str]], sender: str, *, limit: int = BATCH
) -> int:
    """pending -> expired, where the gate closed by the clock. Answers how many. `providers` by route."""
    with database.transaction() as tx:
        rows = tx.execute(SQL["lock_overdue_pending"], {"limit": limit}).fetchall()
        all_paused = {
            route: provider_pauses.all_paused(tx, providers[route], sender)
            for route in {row["route"] for row in rows}
        }
        for row, facts in zip(rows, deliveries.read_facts(tx, rows), strict=True):
            waited = all_paused[row["route"]] or row["was_refused"]
            deliveries.move(tx, facts.delivery, rules.end_overdue_pending(waited_for_provider=waited))
    return len(rows)


def end_overdue_unknown(
    database: Database, policy: Policy, terms: UnknownTerms, *, after: Batch | None = None, limit: int = BATCH
) -> Batch:
    """unknown -> failed when nothing can resolve it any more, back when all its attempts are closed, else put off."""
    start = (after or Batch(0, 0)).after
    moved = 0
    with database.transaction() as tx:
        rows = tx.execute(
            SQL["lock_overdue_unknown"],
            {"route": terms.route, "after_at": start[0], "after_id": start[1], "limit": limit},
        ).fetchall()
        for row, facts in zip(rows, deliveries.read_facts(tx, rows), strict=True):
            moved += _end_unknown(tx, row, facts, policy, terms)
    end = (rows[-1]["next_attempt_at"], rows[-1]["id"]) if rows else start
    return Batch(len(rows), moved, end)


def return_answered_late(database: Database, policy: Policy, *, limit: int = BATCH) -> int:
    """unknown -> back, where a late result closed the last open attempt. Answers how many."""
    with database.transaction() as tx:
        rows = tx.execute(
            SQL["lock_unknown_answered_late"], {"closing": sorted(CLOSING_OUTCOMES), "limit": limit}
        ).fetchall()
        for facts in deliveries.read_facts(tx, rows):
            to = rules.end_overdue_unknown(facts, policy, may_replay=False, paused=False)
            if to is not None:
                deliveries.move(tx, facts.delivery, to)
    return len(rows)


def expire_verifications(database: Database, *, limit: int = BATCH) -> int:
    """requested -> expired, for tokens that ran out. Answers how many."""
    with database.transaction() as tx:
        return len(tx.execute(SQL["expire_verifications"], {"limit": limit}).fetchall())


def _end_unknown(tx: Tx, row: Row, facts: Facts, policy: Policy, terms: UnknownTerms) -> bool:
    traits = next((p for p in terms.providers if p.name == facts.delivery.open_provider), None)
    may_replay = not row["is_suppressed"] and rules.may_replay(facts, traits, terms.unknown_budget)
    paused = traits is not None and provider_pauses.all_paused(tx, [traits.name], terms.sender)
    early = traits is not None and (traits.can_look_up or (traits.replay_window > 0 and may_replay))
    to = rules.end_overdue_unknown(facts, policy, may_replay=may_replay, paused=paused, has_early_step=early)
    if to is None:
        return False
    deliveries.move(tx, facts.delivery, to)
    if to.to is State.FAILED:
        log.error("outcome_unresolved", delivery_id=ids.public("dlv", facts.delivery.id), alert=True)
    return True
