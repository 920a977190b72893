"""What an operator may do to one delivery: retry, resolve, cancel. Each is one transaction, recorded with who and why.

What it would come to is asked first (`preview`, which locks nothing and changes nothing) and decided again under the
locks. Nothing here wakes a worker: the next sweep finds what became due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from psycopg import Cursor

from db import deliveries, endings, receipts, stakes
from db import delivery_rules as rules
from db.delivery_rules import Facts
from db.delivery_state import Action, Evidence, State
from db.errors import NotFound, OperationRefused
from db.ids import new_id
from db.logs import mask
from db.phases import CancelledBy
from db.queries import load
from db.session import Database, Row, Tx
from db.stakes import RetryTerms, Verdict
from db.views import Known

_SQL = load("operations.sql")

Weigh = Callable[[Known], str]  # what is at stake; raises OperationRefused


@dataclass(frozen=True, slots=True)
class Operator:
    """Who asks, and why: both are kept and shown without anything that looks like an address or a secret."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What an operation would meet: the state and fence that were looked at, and what is at stake."""

    state: State
    lease_token: int
    at_stake: str


@dataclass(frozen=True, slots=True)
class Done:
    """What an operation did."""

    delivery_id: UUID
    action: Action
    from_state: State
    to_state: State
    at: datetime
    at_stake: str


def preview(database: Database, delivery_id: UUID, weigh: Weigh) -> Preview:
    """What the operation would meet now. Raises NotFound, OperationRefused, DatabaseUnavailable."""
    with database.transaction() as tx:
        verification_id = _id_of(tx.execute(_SQL["find_verification"], {"id": delivery_id}))
        known = receipts.read_known_in(tx, None, verification_id)
    return Preview(known.delivery.status, known.delivery.lease_token, weigh(known))


def retry(
    database: Database, delivery_id: UUID, by: Operator, terms: RetryTerms, *, seen: Preview | None = None
) -> Done:
    """pending, failed, expired, cancelled -> pending, due now, as new.

    Raises NotFound, OperationRefused, DatabaseUnavailable.
    """
    weigh = partial(stakes.of_retry, terms=terms)
    with _weighed(database, delivery_id, weigh, seen) as (tx, facts, known, at_stake):
        tx.execute(
            _SQL["reopen"],
            {
                "id": delivery_id,
                "lease_token": facts.delivery.lease_token,
                "before": facts.delivery.status,
                "send_before": terms.gate(known),
                "last_error": rules.OPERATOR_RETRIED,
            },
        )
        return _record(tx, facts, by, Action.RETRY, to_state=State.PENDING, at_stake=at_stake)


def resolve(
    database: Database, delivery_id: UUID, verdict: Verdict, by: Operator, *, seen: Preview | None = None
) -> Done:
    """unknown -> failed, or wherever the gate leads on the way to pending; whatever was handed over -> accepted.

    Raises NotFound, OperationRefused, DatabaseUnavailable.
    """
    weigh = partial(stakes.of_resolve, verdict=verdict)
    with _weighed(database, delivery_id, weigh, seen) as (tx, facts, _, at_stake):
        to_state = _resolve(tx, facts, verdict)
        return _record(tx, facts, by, Action.RESOLVE, to_state=to_state, at_stake=at_stake)


def cancel(database: Database, delivery_id: UUID, by: Operator, *, seen: Preview | None = None) -> Done:
    """As the client's own cancel: the verification ends, and the delivery's gate closes.

    Raises NotFound, OperationRefused, DatabaseUnavailable.
    """
    with _weighed(database, delivery_id, stakes.of_cancel, seen) as (tx, facts, _, at_stake):
        endings.cancel_requested(tx, facts.delivery.verification_id, by=CancelledBy.OPERATOR)
        to_state = deliveries.lock(tx, delivery_id).delivery.status
        return _record(tx, facts, by, Action.CANCEL, to_state=to_state, at_stake=at_stake)


@contextmanager
def _weighed(
    database: Database, delivery_id: UUID, weigh: Weigh, seen: Preview | None
) -> Iterator[tuple[Tx, Facts, Known, str]]:
    """A transaction that holds account, verification and delivery, in which the operation is allowed.

    `seen` is what the operator confirmed: of another state they would have been told something else.
    """
    with database.transaction() as tx:
        verification_id = lock_for_delivery(tx, delivery_id)
        facts = deliveries.lock(tx, delivery_id)
        known = receipts.read_known_in(tx, None, verification_id)
        at_stake = weigh(known)
        found = (facts.delivery.status, facts.delivery.lease_token)
        if seen is not None and (seen.state, seen.lease_token) != found:
            raise OperationRefused(f"it changed meanwhile and is {facts.delivery.status} now: look again")
        yield tx, facts, known, at_stake


def lock_for_delivery(tx: Tx, delivery_id: UUID) -> UUID:
    """Lock a delivery's account and verification, whose id is answered; the delivery itself is next. Raises NotFound."""
    tx.execute(_SQL["lock_account_of_delivery"], {"id": delivery_id})
    return _id_of(tx.execute(_SQL["lock_verification_of_delivery"], {"id": delivery_id}))


def _id_of(found: Cursor[Row]) -> UUID:
    row = found.fetchone()
    if row is None:
        raise NotFound("no such delivery")
    verification_id: UUID = row["id"]
    return verification_id


def _resolve(tx: Tx, facts: Facts, verdict: Verdict) -> State:
    delivery = facts.delivery
    match verdict:
        case Verdict.ACCEPTED:
            deliveries.record_evidence(tx, facts, Evidence.OPERATOR)
            return State.ACCEPTED
        case Verdict.FAILED:
            return deliveries.move(tx, delivery, rules.resolve_failed(), last_error=rules.OPERATOR_RESOLVED)
        case Verdict.PENDING:
            tx.execute(_SQL["close_attempts"], {"id": delivery.id, "error_code": rules.OPERATOR_RESOLVED})
            to = rules.resolve_not_sent(facts)
            return deliveries.move(tx, delivery, to, last_error=rules.OPERATOR_RESOLVED)


def _record(tx: Tx, facts: Facts, by: Operator, action: Action, *, to_state: State, at_stake: str) -> Done:
    """Its instant is that of the decision, so that it stands before its consequences."""
    done = Done(facts.delivery.id, action, facts.delivery.status, to_state, facts.now, at_stake)
    tx.execute(
        _SQL["insert_action"],
        {
            "action_id": new_id(),
            "delivery_id": done.delivery_id,
            "action": done.action,
            "operator": mask(by.name),
            "reason": mask(by.reason),
            "at_stake": done.at_stake,
            "from_state": done.from_state,
            "to_state": done.to_state,
            "at": done.at,
        },
    )
    return done
