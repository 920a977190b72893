"""Two hands on one delivery: whoever comes second finds the row as the first left it."""

from __future__ import annotations

import pytest

from db import changes, deliveries, leases, overdue, sweep_runs
from db.delivery_state import Evidence, GateReason, Outcome, State
from tests.factories import DIGEST, SENDER, SMTP, Factory, policy, terms
from tests.support.races import Later, holding, together, wait_until_blocked

LOCK = "SELECT 1 FROM email_outbox WHERE id = %s FOR UPDATE"


def test_claim_x_claim_one_row_has_one_owner(make: Factory) -> None:
    make.waiting()
    claimed = together(12, lambda n: leases.claim(make.database, terms(owner=f"host:{n}:0")))
    assert sum(map(len, claimed)) == 1


def test_claim_x_claim_many_rows_are_shared_without_a_wait_or_a_double(make: Factory) -> None:
    made = {make.waiting().delivery_id for _ in range(24)}
    claimed = together(12, lambda n: leases.claim(make.database, terms(owner=f"host:{n}:0"), limit=2))
    ids = [lease.delivery_id for batch in claimed for lease in batch]
    assert len(ids) == len(set(ids)) == 24
    assert set(ids) == made


def test_claim_passes_over_a_row_that_is_held(make: Factory, database_url: str) -> None:
    held, free = make.waiting().delivery_id, make.waiting().delivery_id
    with holding(database_url, LOCK, held):
        assert [lease.delivery_id for lease in leases.claim(make.database, terms())] == [free]


def test_hand_over_x_time_a_lease_that_ends_while_its_row_is_waited_for_sends_nothing(
    make: Factory, database_url: str
) -> None:
    lease = make.leased()
    with holding(database_url, LOCK, lease.delivery_id) as connection:
        late = Later(lambda: make.hand_over(lease))
        wait_until_blocked(database_url)
        connection.execute(
            "UPDATE email_outbox SET lease_until = clock_timestamp() WHERE id = %s", [lease.delivery_id]
        )
    assert late.result() is False
    assert make.attempts(lease.delivery_id) == []


@pytest.mark.parametrize("reason", GateReason)
def test_gate_x_hand_over_the_gate_first(make: Factory, database_url: str, reason: GateReason) -> None:
    lease = make.leased()
    with make.database.transaction() as tx:
        facts = deliveries.lock(tx, lease.delivery_id)
        late = Later(lambda: make.hand_over(lease))
        wait_until_blocked(database_url)
        deliveries.close_gate(tx, facts, reason)
    assert late.result() is False


def test_gate_x_hand_over_the_hand_over_first(make: Factory, database_url: str) -> None:
    lease = make.handed_over()
    with holding(database_url, LOCK, lease.delivery_id):
        late = Later(lambda: make.close_gate(lease.delivery_id, GateReason.SUPERSEDED))
        wait_until_blocked(database_url)
    assert late.result() is State.SENDING
    assert make.settle(lease, Outcome.ACCEPTED).state is State.ACCEPTED


def test_reclaim_x_settle_the_reclaim_first(make: Factory, database_url: str) -> None:
    lease = make.handed_over()
    make.pass_time(lease.delivery_id, seconds=91)
    with holding(database_url, LOCK, lease.delivery_id):
        sweep = Later(lambda: overdue.reclaim_lost(make.database, policy(), lease_seconds=90))
        assert sweep.result() == 0, "a sweep does not wait for a row in use"
    assert make.reclaim() == 1
    assert make.settle(lease, Outcome.TRANSIENT).stale
    assert make.row(lease.delivery_id)["status"] == "unknown"


def test_reclaim_x_settle_the_settle_first(make: Factory) -> None:
    lease = make.handed_over()
    assert make.settle(lease, Outcome.ACCEPTED).state is State.ACCEPTED
    make.pass_time(lease.delivery_id, seconds=91)
    assert make.reclaim() == 0


def test_settle_x_time_a_lease_that_ends_while_its_row_is_waited_for_moves_nothing(
    make: Factory, database_url: str
) -> None:
    lease = make.handed_over()
    with holding(database_url, LOCK, lease.delivery_id) as connection:
        late = Later(lambda: make.settle(lease, Outcome.TRANSIENT, "greylisted"))
        wait_until_blocked(database_url)
        connection.execute(
            "UPDATE email_outbox SET lease_until = clock_timestamp() WHERE id = %s", [lease.delivery_id]
        )
    assert late.result().stale
    assert make.row(lease.delivery_id)["status"] == "sending"


def test_evidence_x_settle_the_evidence_first(make: Factory, database_url: str) -> None:
    lease = make.handed_over()
    with make.database.transaction() as tx:
        facts = deliveries.lock(tx, lease.delivery_id)
        late = Later(lambda: make.settle(lease, Outcome.UNKNOWN, "reply_timeout"))
        wait_until_blocked(database_url)
        assert deliveries.record_evidence(tx, facts, Evidence.WEBHOOK, provider=SMTP.name)
    assert late.result().state is State.ACCEPTED
    row = make.row(lease.delivery_id)
    assert (row["status"], row["evidence"]) == ("accepted", "webhook")


def test_settle_x_settle_twins_write_once(make: Factory) -> None:
    lease = make.handed_over()
    settled = together(4, lambda _: make.settle(lease, Outcome.TRANSIENT, "greylisted"))
    assert {one.state for one in settled} == {State.PENDING}
    assert make.row(lease.delivery_id)["attempt_count"] == 1
    moved = make.all("SELECT 1 FROM state_changes WHERE after = 'pending' AND before = 'sending'")
    assert len(moved) == 1


def test_probe_x_probe_one_delivery_tries_a_provider_that_was_away(make: Factory) -> None:
    for _ in range(6):
        make.waiting()
    make.execute(
        "INSERT INTO provider_status (provider, sender, kind, code, paused_until) VALUES (%s, %s, 'away', 'x', now())",
        SMTP.name,
        SENDER,
    )
    claimed = together(6, lambda n: leases.claim(make.database, terms(owner=f"host:{n}:0")))
    assert sum(map(len, claimed)) == 1


def test_sweep_x_sweep_one_takes_the_slot(make: Factory) -> None:
    begun = together(
        6, lambda n: sweep_runs.begin(make.database, interval=3600, worker=f"w{n}", trigger="beat")
    )
    assert len([slot for slot in begun if slot is not None]) == 1


def test_numberer_x_numberer_the_feed_has_no_gap_and_no_double(make: Factory) -> None:
    for _ in range(20):
        make.waiting()
    together(4, lambda _: changes.number(make.database, limit=7))
    changes.number(make.database)
    numbers = [row["seq"] for row in make.all("SELECT seq FROM state_changes ORDER BY seq")]
    assert numbers == list(range(1, 21))


def test_number_x_commit_a_change_that_commits_late_gets_a_later_number(
    make: Factory, database_url: str
) -> None:
    slow, quick = make.waiting(), make.waiting()
    changes.number(make.database)
    with make.database.transaction() as tx:
        deliveries.close_gate(tx, deliveries.lock(tx, slow.delivery_id), GateReason.SUPERSEDED)
        make.close_gate(quick.delivery_id, GateReason.SUPERSEDED)
        assert changes.number(make.database) == 1
    assert changes.number(make.database) == 1
    rows = make.all("SELECT delivery_id FROM state_changes WHERE after = 'expired' ORDER BY seq")
    assert [row["delivery_id"] for row in rows] == [quick.delivery_id, slow.delivery_id]


def test_the_digest_of_an_open_hand_over_is_pinned(make: Factory) -> None:
    delivery_id = make.unknown().delivery_id
    make.pass_time(delivery_id, seconds=1801)
    replay = make.claim(delivery_id)
    tries = together(2, lambda n: make.hand_over(replay, digest=DIGEST if n else b"\x09" * 32))
    assert tries[0] is False
