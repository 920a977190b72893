"""The sweep: turns time (leases, deadlines, expiry) into state. Safe to run twice, late, or on many workers at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from db import overdue, sweep_runs
from db.errors import DatabaseUnavailable
from db.logs import get_logger
from db.overdue import BATCH, UnknownTerms
from tasks.deadline import Deadline
from tasks.delivery import Courier

log = get_logger(__name__)

_NUMBERED_AT_ONCE = 1000


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
    steps["unknown_ended"] = partial(_end_overdue_unknown, courier, until)
    counts = {name: _attempt(name, step) for name, step in steps.items()}
    with suppress(DatabaseUnavailable):
        sweep_runs.finish(courier.database, slot, counts)
    if any(moved for name, moved in counts.items() if name != "changes_numbered"):
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
    terms = courier.terms("")
    names = [provider.name for provider in terms.providers]
    lease = courier.settings.lease
    return {
        "reclaimed": (lambda: overdue.reclaim_lost(database, policy, lease_seconds=lease), BATCH),
        "pending_ended": (lambda: overdue.end_overdue_pending(database, names, terms.sender), BATCH),
        "answered_late": (lambda: overdue.return_answered_late(database, policy), BATCH),
        "verifications_expired": (lambda: overdue.expire_verifications(database), BATCH),
        "changes_numbered": (lambda: sweep_runs.number_changes(database), _NUMBERED_AT_ONCE),
    }


def _in_batches(batch: Callable[[], int], size: int, until: Deadline) -> int:
    total = 0
    while not until.expired:
        moved = batch()
        total += moved
        if moved < size:
            break
    return total


def _end_overdue_unknown(courier: Courier, until: Deadline) -> int:
    """By keyset: most due unknown rows are the next claim's and stay, so a batch may move none."""
    terms = courier.terms("")
    unknown_terms = UnknownTerms(terms.route, terms.providers, terms.sender, terms.unknown_budget)
    moved, batch = 0, None
    while not until.expired:
        batch = overdue.end_overdue_unknown(courier.database, courier.policy, unknown_terms, after=batch)
        moved += batch.moved
        if batch.seen < BATCH:
            break
    return moved
