"""Hot statements read a bounded number of rows whatever the tables hold, and whatever the planner believes (G12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from db import leases, overdue, plans, repair
from db.deliveries import SQL
from db.delivery_state import CLOSING_OUTCOMES
from db.queries import load
from db.session import Database
from dev.postgres import Postgres
from tests.factories import DIGEST, SENDER, SMTP, Factory, policy, terms

FINISHED, WAITING, LATER = 20_000, 5_000, 5_000

FILL = """
WITH numbers AS (SELECT n, ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id
                 FROM generate_series(%(first)s::bigint, %(last)s::bigint) n),
a AS (INSERT INTO accounts (id, client_id, external_id) SELECT id, %(client)s, id FROM numbers RETURNING id),
v AS (INSERT INTO verifications (id, client_id, account_id, purpose, email, email_canonical, token_key_id, token_nonce,
        token_hash, template_version, idempotency_key, fingerprint, correlation_id, expires_at)
      SELECT id, %(client)s, id, 'signup', 'p@example.com', 'p@example.com', 'k1', '', uuid_send(id), 1, id, '', 'r',
        clock_timestamp() + interval '1 day' FROM numbers RETURNING id)
INSERT INTO email_outbox (id, verification_id, client_id, route, status, open_provider, payload_digest, next_attempt_at,
       completed_at, evidence, send_before)
SELECT id, id, %(client)s, %(route)s, %(status)s,
       CASE WHEN %(status)s = 'unknown' THEN 'simulator' END, CASE WHEN %(status)s = 'unknown' THEN ''::bytea END,
       %(due)s::timestamptz,
       CASE WHEN %(status)s = 'accepted' THEN now() END, CASE WHEN %(status)s = 'accepted' THEN 'response' END,
       now() + interval '4 hours'
FROM numbers
"""


def fill_with(make: Factory, first: int, count: int, status: str, due: str | None, *, route: str) -> None:
    last = first + count - 1
    values = {"first": first, "last": last, "status": status, "due": due, "route": route}
    make.execute_named(FILL, {**values, "client": make.client()})


@pytest.fixture(scope="module", params=["fresh statistics", "no statistics"])
def full(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[Factory]:
    """Tables with a history, a backlog and a future; filling them takes seconds, so the tests share them."""
    name = "full_" + request.param.split()[0]
    database = Database(postgres.create_database(name, template="migrated"), statement_timeout=60.0, size=1)
    make = Factory(database)

    def fill(*what: Any, route: str = "live") -> None:
        fill_with(make, *what, route=route)

    fill(1, FINISHED, "accepted", None)
    fill(100_001, WAITING, "pending", "2026-01-01")
    fill(200_001, LATER, "pending", "2126-01-01")
    # Of another route, and due for longer: whoever reads past it pays for each row.
    fill(300_001, WAITING, "pending", "2025-01-01", route="test")
    if request.param == "fresh statistics":
        make.execute("ANALYZE")
    yield make
    database.close()
    postgres.drop_database(name)


def rows_read(make: Factory, statement: Any, parameters: dict[str, Any], *, by_index: bool = False) -> int:
    """The most rows any node of the plan produced or threw away, over all its loops."""
    with make.database.transaction() as tx:
        if by_index:  # as the product asks
            plans.follow_indexes(tx)
        answer = tx.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement, parameters).fetchone()
    assert answer is not None
    return max(_rows(node) for node in _nodes(answer["QUERY PLAN"][0]["Plan"]))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _rows(node: dict[str, Any]) -> int:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])


def claim_parameters(make: Factory) -> dict[str, Any]:
    asked = terms()
    return {
        **leases._position(leases.BEGINNING),
        **leases._providers(asked),
        "route": asked.route,
        "owner": asked.owner,
        "lease_seconds": asked.lease_seconds,
        "evidence_window": asked.evidence_window,
        "unknown_budget": asked.unknown_budget,
        "closing": sorted(CLOSING_OUTCOMES),
        "limit": 1,
    }


def test_a_claim_reads_what_it_takes(full: Factory) -> None:
    assert rows_read(full, SQL["claim"], claim_parameters(full)) <= 20


def test_looking_for_due_work_reads_one_row(full: Factory) -> None:
    asked = terms()
    parameters = {
        **leases._position(leases.BEGINNING),
        **leases._providers(asked),
        "route": asked.route,
    }
    assert rows_read(full, SQL["has_due_work"], parameters) <= 20


def test_a_hand_over_and_a_settle_read_their_own_delivery(full: Factory) -> None:
    (lease,) = leases.claim(full.database, terms())
    hand_over = {
        "id": lease.delivery_id,
        "owner": lease.owner,
        "lease_token": lease.token,
        "lease_seconds": 90.0,
        "provider": lease.provider,
        "digest": DIGEST,
        "idempotency_key": None,
        "claimed_at": lease.claimed_at,
        "correlation_id": lease.correlation_id,
        "release": None,
    }
    assert rows_read(full, SQL["hand_over"], hand_over) <= 20
    assert rows_read(full, SQL["lock_deliveries"], {"ids": [lease.delivery_id]}) <= 20
    assert rows_read(full, SQL["read_attempts"], {"ids": [lease.delivery_id]}) <= 20


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("lock_lost_leases", {"limit": 100}),
        ("lock_overdue_pending", {"limit": 100}),
        (
            "lock_overdue_unknown",
            {"route": "live", "limit": 100, "after_at": "1970-01-01", "after_id": "0" * 32},
        ),
        ("lock_unknown_answered_late", {"limit": 100, "closing": sorted(CLOSING_OUTCOMES)}),
        ("expire_verifications", {"limit": 100}),
    ],
)
def test_an_idle_sweep_reads_nothing(full: Factory, name: str, parameters: dict[str, Any]) -> None:
    assert rows_read(full, SQL[name], parameters) <= 20


def test_whatever_is_asked_about_is_found_by_an_index(full: Factory) -> None:
    explained = load("explain.sql")["find_by_text"]
    assert rows_read(full, explained, {"text": "nobody", "limit": 20}, by_index=True) <= 20


@pytest.mark.parametrize("kind", repair.KINDS)
def test_a_repair_reads_the_deliveries_of_its_page(full: Factory, kind: str) -> None:
    page = repair._SQL["read_page"]
    names = {"after": repair._FIRST, "limit": 10}
    assert rows_read(full, page, names) <= 10
    with full.database.transaction() as tx:
        found = [row["id"] for row in tx.execute(page, names)]
    query = repair._SQL[repair.KINDS[kind][0]]
    assert rows_read(full, query, {"ids": found, "closing": sorted(CLOSING_OUTCOMES)}) <= 20


def test_retention_with_nothing_old_enough_reads_nothing(full: Factory) -> None:
    young = {"retention": 86_400.0, "after_at": "1970-01-01", "after_id": UUID(int=0), "limit": 200}
    assert rows_read(full, load("retention.sql")["find_finished"], young) <= 20
    assert rows_read(full, load("retention.sql")["delete_suppressions"], young) <= 20


CREATE = {
    "client_id": None,
    "external_id": "00000000-0000-7000-8000-000000000001",
    "idempotency_key": "k",
    "purpose": "signup",
    "email_canonical": "nobody@example.com",
    "seconds": 3600.0,
    "account_limit": 20,
    "address_limit": 20,
    "max_waiting": 10,
    "token_hash": b"none",
    "id": UUID(int=0),
    "kind": "create_by_client",
    "subject": b"x",
    "capacity": 10.0,
}


@pytest.mark.parametrize(
    "query",
    [
        *(
            "verifications.sql:lock_account",
            "verifications.sql:find_by_key",
            "verifications.sql:lock_requested",
        ),
        *("admission.sql:read_recent_of_account", "admission.sql:find_last_of_address"),
        *("admission.sql:count_unfinished", "limits.sql:read_wait", "endings.sql:read_status"),
        *(
            "consumption.sql:lock_account_of_token",
            "consumption.sql:consume",
            "consumption.sql:read_by_token",
        ),
    ],
)
def test_a_request_and_a_token_read_what_is_theirs(full: Factory, query: str) -> None:
    file, _, name = query.partition(":")
    assert rows_read(full, load(file)[name], CREATE | {"client_id": full.client()}) <= 20


def test_an_idle_sweep_moves_nothing(full: Factory) -> None:
    assert overdue.reclaim_lost(full.database, policy(), lease_seconds=90) == 0
    assert overdue.end_overdue_pending(full.database, {"live": [SMTP.name]}, SENDER) == 0
    assert overdue.expire_verifications(full.database) == 0


def test_a_claim_weighs_few_of_the_unknowns_that_none_can_take(make: Factory) -> None:
    """A provider that is no longer configured leaves them to the sweep; each claim would look at all their attempts."""
    unresolved = make.unknown().delivery_id
    for _ in range(300):
        make.unknown()
    make.execute("UPDATE email_outbox SET open_provider = 'gone/x', next_attempt_at = '2026-01-01'")
    make.execute("UPDATE delivery_attempts SET handed_over_at = handed_over_at - interval '1801 seconds'")
    with make.database.transaction() as tx:
        answer = tx.execute(
            "EXPLAIN (ANALYZE, FORMAT JSON) " + SQL["claim"], claim_parameters(make)
        ).fetchone()
    assert answer is not None
    assert max(node["Actual Loops"] for node in _nodes(answer["QUERY PLAN"][0]["Plan"])) <= 110
    assert make.row(unresolved)["status"] == "unknown"


@pytest.mark.parametrize("statistics", ["fresh", "none"])
def test_unknowns_of_another_route_cost_this_one_nothing(make: Factory, statistics: str) -> None:
    fill_with(make, 1, 2000, "accepted", None, route="live")
    fill_with(make, 100_001, 2000, "unknown", "2025-01-01", route="test")
    if statistics == "fresh":
        make.execute("ANALYZE")
    asked = claim_parameters(make)
    late = {"route": "live", "limit": 100, "after_at": "1970-01-01", "after_id": "0" * 32}
    for name, parameters in (("claim", asked), ("has_due_work", asked), ("lock_overdue_unknown", late)):
        assert rows_read(make, SQL[name], parameters) <= 20, name
