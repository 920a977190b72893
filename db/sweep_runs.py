"""The record of sweeps: one a slot of time, whoever comes first."""

from __future__ import annotations

from collections.abc import Mapping

from psycopg.types.json import Jsonb

from db.queries import load
from db.session import Database

_SQL = load("sweep_runs.sql")

_KEEP_SECONDS = 2 * 86_400.0  # long enough to read about last night


def begin(database: Database, *, interval: float, worker: str, trigger: str) -> int | None:
    """Take this slot of `interval` seconds; None when another sweep has it. `trigger` is `beat` or `timer`."""
    with database.transaction() as tx:
        row = tx.execute(
            _SQL["begin"], {"interval": interval, "worker": worker, "trigger": trigger}
        ).fetchone()
    return int(row["slot"]) if row and row["is_ours"] else None


def finish(database: Database, slot: int, counts: Mapping[str, int]) -> None:
    """Record what the sweep of `slot` did, and forget runs older than two days."""
    with database.transaction() as tx:
        tx.execute(_SQL["finish"], {"slot": slot, "counts": Jsonb(dict(counts))})
        tx.execute(_SQL["prune"], {"keep": _KEEP_SECONDS})


def seconds_since_beat(database: Database) -> float | None:
    """How long ago a sweep last came through the broker, in seconds; None when never."""
    with database.transaction() as tx:
        row = tx.execute(_SQL["seconds_since_beat"]).fetchone()
    return row["seconds"] if row else None
