"""The sweep turns time into state: once a slot, in bounded batches, and without the broker if need be."""

from __future__ import annotations

from db import leases, sweep_runs
from db.delivery_state import Outcome
from tasks import sweep
from tasks.takeover import Takeover
from tests.factories import Factory, terms
from tests.support.cluster import wait_for
from tests.support.courier import create, make_courier
from tests.support.smtp_server import SmtpServer

NOWHERE = "smtp://127.0.0.1:1"


def test_one_sweep_a_slot(make: Factory) -> None:
    courier = make_courier(make.database, NOWHERE, sweep_interval=3600.0)
    assert sweep.run_once(courier, trigger="beat") is not None
    assert sweep.run_once(courier, trigger="beat") is None
    run = make.one("SELECT * FROM sweep_runs")
    assert run["finished_at"] is not None
    assert run["counts"]["reclaimed"] == 0


def test_everything_that_time_ended_is_ended_in_one_sweep(make: Factory) -> None:
    courier = make_courier(make.database, NOWHERE)
    lost = [make.leased().delivery_id for _ in range(3)]
    for delivery_id in lost:
        make.pass_time(delivery_id, seconds=91)
    overdue = make.waiting(send_before=0.0)
    unresolved = make.unknown().delivery_id
    make.execute("UPDATE email_outbox SET replay_count = 1 WHERE id = %s", unresolved)
    make.pass_time(unresolved, seconds=1801)
    expired = make.waiting()
    make.execute(
        "UPDATE verifications SET expires_at = clock_timestamp() WHERE id = %s", expired.verification_id
    )
    counts = sweep.run_once(courier, trigger="beat")
    assert counts is not None
    assert (counts["reclaimed"], counts["pending_ended"], counts["unknown_ended"]) == (3, 1, 1)
    assert counts["verifications_expired"] == 1
    assert {make.row(delivery_id)["status"] for delivery_id in lost} == {"pending"}
    assert make.row(overdue.delivery_id)["status"] == "expired"
    assert make.row(unresolved)["failure_code"] == "outcome_unresolved"


def test_a_full_batch_of_rows_that_stay_starves_none_behind_it(make: Factory) -> None:
    """Due unknown rows that the next claim will take stay where they are; the sweep goes on past them."""
    courier = make_courier(make.database, NOWHERE)
    for _ in range(120):
        make.unknown()
    behind = make.unknown().delivery_id
    make.execute("UPDATE email_outbox SET open_provider = 'smtp/127.0.0.1'")
    make.execute("UPDATE email_outbox SET replay_count = 1 WHERE id = %s", behind)
    make.execute(
        "UPDATE email_outbox SET next_attempt_at = now() - interval '1 second' WHERE id <> %s", behind
    )
    make.execute("UPDATE email_outbox SET next_attempt_at = now() WHERE id = %s", behind)
    make.execute("UPDATE delivery_attempts SET handed_over_at = handed_over_at - interval '1801 seconds'")
    counts = sweep.run_once(courier, trigger="beat")
    assert counts is not None
    assert counts["unknown_ended"] == 1
    assert make.row(behind)["status"] == "failed"


def test_a_sweep_that_finds_due_work_kicks(make: Factory) -> None:
    kicks: list[int] = []
    courier = make_courier(make.database, NOWHERE, kick=lambda: kicks.append(1), sweep_interval=0.001)
    sweep.run_once(courier, trigger="beat")
    assert kicks == []
    make.waiting()
    sweep.run_once(courier, trigger="beat")
    assert kicks == [1]


def test_while_all_providers_are_paused_nothing_is_kicked(make: Factory) -> None:
    kicks: list[int] = []
    courier = make_courier(make.database, NOWHERE, kick=lambda: kicks.append(1))
    courier.deliver(_claimed(make, courier))
    make.waiting()
    assert make.all("SELECT 1 FROM provider_status WHERE paused_until > now()")
    sweep.run_once(courier, trigger="beat")
    assert kicks == []


def test_changes_are_numbered_by_the_sweep(make: Factory) -> None:
    make.settle(make.handed_over(), Outcome.ACCEPTED)
    sweep.run_once(make_courier(make.database, NOWHERE), trigger="beat")
    numbered = make.all("SELECT seq, after FROM state_changes ORDER BY seq")
    assert [(row["seq"], row["after"]) for row in numbered] == [(1, "pending"), (2, "accepted")]


def test_a_worker_takes_over_only_when_the_broker_has_been_silent(make: Factory) -> None:
    create(make.database, make.client())
    with SmtpServer() as mail:
        courier = make_courier(make.database, f"smtp://127.0.0.1:{mail.port}", sweep_interval=0.5)
        takeover = Takeover(courier)
        sweep_runs.begin(make.database, interval=0.5, worker="other", trigger="beat")
        assert takeover.run_once() is False
        assert leases.has_due_work(make.database, terms())
        make.execute("UPDATE sweep_runs SET started_at = started_at - interval '1 second'")
        assert takeover.run_once() is True
        takeover.join()
        wait_for(lambda: mail.messages, "the mail")


def _claimed(make: Factory, courier: object) -> leases.Lease:
    create(make.database, make.client())
    return make.claim_by(courier)  # type: ignore[arg-type]
