"""The sweep: turns time (leases, deadlines, expiry) into state. Safe to run twice, late, or on many workers at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from db import changes, limits, overdue, retention, sweep_runs
from db.errors import DatabaseUnavailable
from db.logs import get_logger
from db.overdue import BATCH, UnknownTerms
from tasks.deadline import Deadline
from tasks.delivery import Courier
from tasks.routes import LIVE, Route

log = get_logger(__name__)

_FORGOTTEN_AT_ONCE = 1000
# Of those old enough, a sweep: a quarter of a million an hour, and a fixed price however many must stay a little longer.
_LOOKED_AT_ONCE = 1000


def run_once(courier: Courier, *, trigger: str) -> dict[str, int] | None:
    """Sweep once, unless this slot of time was swept already (None). Answers how many rows each step moved.

    `trigger` is `beat` (through the broker) or `timer` (this worker's own). Takes at most one interval; what is left then
    is the next sweep's.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}"
    interval = courier.settings.sweep_interval
    slot = sweep_runs.begin(courier.database, interval=interval, worker=worker, trigger=trigger)
    if slot is None:
        return None
    until = Deadline.after(interval)
    steps = {
        name: partial(_in_batches, batch, size, until) for name, (batch, size) in _steps(courier).items()
    }
    for route in courier.routes.values():
        name = "unknown_ended" if route.name == LIVE else f"unknown_ended_{route.name}"
        steps[name] = partial(_end_overdue_unknown, courier, route, until)
    steps["anonymised"] = partial(_anonymise, courier, until)  # last: it can wait
    counts = {name: _attempt(name, step) for name, step in steps.items()}
    with suppress(DatabaseUnavailable):
        sweep_runs.finish(courier.database, slot, counts)
    if any(moved for name, moved in counts.items() if name not in {"changes_numbered", "limits_forgotten"}):
        log.info("swept", trigger=trigger, counts=counts)
    if courier.finds_due_work():
        courier.kick()
    return counts


def _attempt(name: str, step: Callable[[], int]) -> int:
    """One step; what goes wrong in it must not keep the others from running."""
    try:
        return step()
    except Exception as error:
        log.error("sweep_step_failed", action=name, reason=type(error).__name__, alert=True)
        return 0


def _steps(courier: Courier) -> dict[str, tuple[Callable[[], int], int]]:
    """Name -> one batch, and its size: a smaller answer means that it was the last."""
    database, policy = courier.database, courier.policy
    terms = [route.terms("") for route in courier.routes.values()]
    names = {each.route: [provider.name for provider in each.providers] for each in terms}
    sender = terms[0].sender
    lease = courier.settings.lease
    return {
        "reclaimed": (lambda: overdue.reclaim_lost(database, policy, lease_seconds=lease), BATCH),
        "pending_ended": (lambda: overdue.end_overdue_pending(database, names, sender), BATCH),
        "answered_late": (lambda: overdue.return_answered_late(database, policy), BATCH),
        "verifications_expired": (lambda: overdue.expire_verifications(database), BATCH),
        "changes_numbered": (lambda: changes.number(database), changes.NUMBERED_AT_ONCE),
        "suppressions_forgotten": (
            lambda: retention.forget_suppressions(database, retention=courier.settings.retention),
            retention.BATCH,
        ),
        "limits_forgotten": (lambda: limits.prune(database, limit=_FORGOTTEN_AT_ONCE), _FORGOTTEN_AT_ONCE),
    }


def _in_batches(batch: Callable[[], int], size: int, until: Deadline) -> int:
    total = 0
    while not until.expired:
        moved = batch()
        total += moved
        if moved < size:
            break
    return total


def _end_overdue_unknown(courier: Courier, route: Route, until: Deadline) -> int:
    """By keyset: most due unknown rows are the next claim's and stay, so a batch may move none.

    One batch at least: another route's backlog may have used up the time.
    """
    terms = route.terms("")
    unknown_terms = UnknownTerms(terms.route, terms.providers, terms.sender, terms.unknown_budget)
    moved, batch = 0, None
    while batch is None or (batch.seen == BATCH and not until.expired):
        batch = overdue.end_overdue_unknown(courier.database, courier.policy, unknown_terms, after=batch)
        moved += batch.moved
    return moved


def _anonymise(courier: Courier, until: Deadline) -> int:
    """By keyset, each sweep of this process from where its last one ended: what is not over yet stays, and hides nothing."""
    anonymised, seen, batch = 0, 0, courier.anonymised_up_to
    while seen < _LOOKED_AT_ONCE and not until.expired:
        batch = retention.anonymise(courier.database, retention=courier.settings.retention, after=batch)
        anonymised += batch.anonymised
        seen += batch.seen
        if batch.seen < retention.BATCH:
            batch = retention.Batch()  # the end: from the beginning, the next time
            break
    courier.anonymised_up_to = batch
    return anonymised
