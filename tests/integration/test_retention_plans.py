"""What forgetting costs does not depend on how much there is to forget, nor on what the planner believes (G12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from db import retention
from db.queries import load
from db.session import Database
from dev.postgres import Postgres
from tests.factories import Factory
from tests.integration.test_plans import fill_with, rows_read

DUE = 20_000  # with 200,000 the same rows are read; filling them takes a minute
BATCH = 200
MONTH = 30 * 86_400.0


@pytest.fixture(scope="module")
def old(postgres: Postgres) -> Iterator[Factory]:
    """All are due; the statistics are those of nearly empty tables."""
    database = Database(postgres.create_database("old", template="migrated"), statement_timeout=120.0, size=1)
    make = Factory(database)
    make.execute("ALTER TABLE verifications SET (autovacuum_enabled = off)")
    make.execute("ALTER TABLE email_outbox SET (autovacuum_enabled = off)")
    make.execute("ALTER TABLE state_changes SET (autovacuum_enabled = off)")
    fill_with(make, 1, 10, "accepted", None, route="live")
    make.execute("ANALYZE")
    fill_with(make, 1001, DUE, "accepted", None, route="live")
    make.execute(
        "UPDATE verifications SET status = 'expired', created_at = created_at - interval '40 days',"
        " expires_at = expires_at - interval '40 days'"
    )
    make.execute("UPDATE state_changes SET at = at - interval '40 days'")
    yield make
    database.close()
    postgres.drop_database("old")


def batch(**changed: Any) -> dict[str, Any]:
    first = {"retention": MONTH, "after_at": "1970-01-01", "after_id": UUID(int=0), "limit": BATCH}
    return {**first, **changed}


def test_a_search_reads_its_batch_from_wherever_it_starts(old: Factory) -> None:
    statement = load("retention.sql")["find_finished"]
    middle = old.one(
        "SELECT created_at AS after_at, id AS after_id FROM verifications ORDER BY created_at, id OFFSET %s LIMIT 1",
        DUE // 2,
    )
    # Each has a few changes, all of which may be looked at.
    assert rows_read(old, statement, batch()) <= 5 * BATCH
    assert rows_read(old, statement, batch(**middle)) <= 5 * BATCH


def test_anonymising_a_batch_reads_its_rows(old: Factory) -> None:
    found = old.all(
        "SELECT id FROM verifications WHERE anonymised_at IS NULL ORDER BY id DESC LIMIT %s", BATCH
    )
    ids = {"ids": [row["id"] for row in found]}
    for name in ("anonymise_verifications", "forget_events", "forget_operators"):
        assert rows_read(old, load("retention.sql")[name], ids) <= 5 * BATCH, name


def test_a_batch_is_a_batch(old: Factory) -> None:
    done = retention.anonymise(old.database, retention=MONTH)
    assert (done.seen, done.anonymised) == (retention.BATCH, retention.BATCH)
