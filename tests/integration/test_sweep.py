"""The sweep turns time into state: once a slot, in bounded batches, and without the broker if need be."""

from __future__ import annotations

from uuid import UUID

from db import leases, sweep_runs
from db.delivery_state import Outcome
from db.leases import Position
from db.session import Database
from tasks import sweep
from tasks.takeover import Takeover
from tests.factories import Factory, terms
from tests.support.cluster import wait_for
from tests.support.courier import create, make_courier
from tests.support.races import holding
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
    create(make.database, make.key())
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


def test_the_takeover_ends_once_the_broker_is_back(make: Factory) -> None:
    """The worker's timer may run a little before beat's sweep in every slot; that one leaves its mark all the same."""
    courier = make_courier(make.database, NOWHERE, sweep_interval=3600.0)
    takeover = Takeover(courier)
    assert takeover.run_once() is True
    assert sweep.run_once(courier, trigger="beat") is None, "the timer has swept this slot"
    assert takeover.run_once() is False


def test_a_longer_interval_does_not_look_like_a_silent_broker(make: Factory) -> None:
    sweep_runs.begin(make.database, interval=1.0, worker="old release", trigger="beat")
    make.execute("UPDATE sweep_runs SET started_at = now() - interval '1 hour'")
    sweep_runs.begin(make.database, interval=15.0, worker="new release", trigger="beat")
    silent = sweep_runs.seconds_since_beat(make.database)
    assert silent is not None
    assert silent < 60


def test_one_step_that_cannot_run_does_not_keep_the_others_from_running(
    make: Factory, database_url: str
) -> None:
    quick = Database(database_url, statement_timeout=0.5, size=4)
    courier = make_courier(quick, NOWHERE)
    overdue = make.waiting(send_before=0.0).delivery_id
    with holding(database_url, "SELECT 1 FROM change_counter FOR UPDATE"):
        counts = sweep.run_once(courier, trigger="beat")
    assert counts is not None
    assert (counts["changes_numbered"], counts["pending_ended"]) == (0, 1)
    assert make.row(overdue)["status"] == "expired"
    quick.close()


def test_what_was_left_behind_the_position_is_sent_without_a_broker_too(make: Factory) -> None:
    left = [create(make.database, make.key()).delivery_id for _ in range(6)]
    make.execute("UPDATE email_outbox SET next_attempt_at = now() - interval '60 s'")
    with SmtpServer() as mail:
        courier = make_courier(make.database, f"smtp://127.0.0.1:{mail.port}", sweep_interval=3600.0)
        with courier.routes["live"].scan.next():
            pass  # the claim of this interval that starts at the beginning found them locked
        now = make.one("SELECT now() AS now")["now"]
        courier.routes["live"].scan._position = Position((now, UUID(int=0)), (now, UUID(int=0)))
        takeover = Takeover(courier)
        takeover.run_once()
        takeover.join()
    assert {make.row(delivery_id)["status"] for delivery_id in left} == {"accepted"}


def _claimed(make: Factory, courier: object) -> leases.Lease:
    create(make.database, make.key())
    return make.claim_by(courier)  # type: ignore[arg-type]
