"""How often somebody may do something in an hour: leaky buckets in the database, so that every process counts together.

A bucket holds as much as an hour allows and leaks at that rate. What does not fit is refused by a constraint of the row,
which ends the whole transaction that wanted it: no round trip is spent on asking first. A subject is a digest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import errors as pg

from db.errors import RateLimited
from db.queries import load
from db.session import Database, Tx

_SQL = load("limits.sql")
LEVEL_CONSTRAINT = "ck_rate_limits_level"


@dataclass(frozen=True, slots=True)
class Bucket:
    """One subject's bucket. `kind` says what is limited and by what; `hourly` is its size; 0: there is no limit."""

    kind: str
    subject: bytes
    hourly: int


def take(tx: Tx, buckets: Sequence[Bucket]) -> None:
    """Put a drop into each bucket, in this order. One that overflows fails the transaction: see `refusal`."""
    limited = [bucket for bucket in buckets if bucket.hourly]
    if limited:
        tx.execute(
            _SQL["take"],
            {
                "kinds": [bucket.kind for bucket in limited],
                "subjects": [bucket.subject for bucket in limited],
                "capacities": [float(bucket.hourly) for bucket in limited],
            },
        )


def refuse_if_full(database: Database, bucket: Bucket) -> None:
    """Raises RateLimited while not another drop fits."""
    if bucket.hourly:
        with database.transaction() as tx:
            seconds = _wait(tx, bucket)
        if seconds > 0:
            raise RateLimited(bucket.kind, math.ceil(seconds))


def record(database: Database, bucket: Bucket) -> None:
    """Put a drop into a bucket, by itself. Raises RateLimited when it overflows."""
    try:
        with database.transaction() as tx:
            take(tx, [bucket])
    except pg.CheckViolation:
        raise refusal(database, [bucket]) from None


def refusal(database: Database, buckets: Sequence[Bucket]) -> RateLimited:
    """Which of the buckets overflowed just now, and when there is room again."""
    with database.transaction() as tx:
        waits = {bucket.kind: _wait(tx, bucket) for bucket in buckets}
    fullest = max(waits, key=lambda kind: waits[kind])
    return RateLimited(fullest, max(1, math.ceil(waits[fullest])))


def prune(database: Database, *, limit: int) -> int:
    """Forget a batch of buckets that are empty again. Answers how many."""
    with database.transaction() as tx:
        return len(tx.execute(_SQL["prune"], {"limit": limit}).fetchall())


def _wait(tx: Tx, bucket: Bucket) -> float:
    """Seconds until another drop fits."""
    if not bucket.hourly:
        return 0.0
    row = tx.execute(
        _SQL["read_wait"],
        {"kind": bucket.kind, "subject": bucket.subject, "capacity": float(bucket.hourly)},
    ).fetchone()
    return float(row["seconds"]) if row else 0.0
