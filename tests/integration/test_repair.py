"""`repair`: each kind of thing that should not be is found, left alone by a dry run, mended, and not found again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from click.testing import Result

import app
from db import consumption, ids, overdue, repair
from db.delivery_state import Outcome, State
from db.overdue import UnknownTerms
from tests.factories import SENDER, SMTP, Factory, policy
from tests.support.api import token_of
from tests.support.courier import create
from tests.support.races import holding

Run = Callable[..., Result]
NOTHING: dict[str, list[str]] = {kind: [] for kind in repair.KINDS}


@pytest.fixture
def run(database_url: str) -> Run:
    def call(*arguments: str) -> Result:
        environment = {"DATABASE_URL": database_url}
        return app.application.test_cli_runner().invoke(
            args=("repair", *arguments), env=environment, catch_exceptions=False
        )

    return call


def by_hand(make: Factory, statement: str, *parameters: Any) -> None:
    """Somebody's hand in the tables: no trigger sees it."""
    with make.database.transaction() as tx:
        tx.execute("SET LOCAL session_replication_role = replica")
        tx.execute(statement, parameters)


def inactive_account(make: Factory) -> UUID:
    made = create(make.database, make.key())
    lease = make.claim(made.delivery_id)
    assert make.hand_over(lease)
    make.settle(lease, Outcome.ACCEPTED)
    consumption.consume(make.database, token_of(make.database, ids.public("ver", made.id)))
    by_hand(make, "UPDATE accounts SET activated_at = NULL, email = NULL")
    return made.delivery_id


def forgotten_hand_over(make: Factory) -> UUID:
    lease = make.unknown()
    forget_hand_over(make, lease.delivery_id, "status = 'pending', next_attempt_at = clock_timestamp()")
    return lease.delivery_id


def forget_hand_over(make: Factory, delivery_id: UUID, change: str) -> None:
    forgotten = "open_provider = NULL, payload_digest = NULL"
    by_hand(make, f"UPDATE email_outbox SET {forgotten}, {change} WHERE id = %s", delivery_id)


def gate_left_open(make: Factory) -> UUID:
    made = make.waiting()
    by_hand(make, "UPDATE verifications SET status = 'cancelled' WHERE id = %s", made.verification_id)
    return made.delivery_id


def answered_unknown(make: Factory) -> UUID:
    lease = make.unknown()
    by_hand(
        make, "UPDATE delivery_attempts SET outcome = 'transient' WHERE delivery_id = %s", lease.delivery_id
    )
    return lease.delivery_id


def unrecorded_acceptance(make: Factory) -> UUID:
    lease = make.unknown()
    by_hand(
        make, "UPDATE delivery_attempts SET outcome = 'accepted' WHERE delivery_id = %s", lease.delivery_id
    )
    return lease.delivery_id


WRONG: dict[str, Callable[[Factory], UUID]] = {
    "accounts_not_activated": inactive_account,
    "hand_overs_forgotten": forgotten_hand_over,
    "gates_left_open": gate_left_open,
    "unknown_though_answered": answered_unknown,
    "acceptances_unrecorded": unrecorded_acceptance,
}


def test_every_kind_is_tried_here_and_documented() -> None:
    assert set(WRONG) == set(repair.KINDS)
    text = (Path(__file__).parents[2] / "docs/unknown-outcomes.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.M)) >= set(repair.KINDS)


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_counted_mended_once_and_then_right(make: Factory, run: Run, kind: str) -> None:
    delivery_id = WRONG[kind](make)
    before = make.row(delivery_id)
    found = {**NOTHING, kind: [ids.public("dlv", delivery_id)]}
    assert json.loads(run("--dry-run", "--json").stdout) == found
    assert make.row(delivery_id) == before
    assert json.loads(run("--json").stdout) == found
    assert json.loads(run("--json").stdout) == NOTHING


def test_a_confirmed_account_becomes_active_when_it_was_confirmed(make: Factory, run: Run) -> None:
    inactive_account(make)
    run()
    row = make.one("SELECT a.email, a.activated_at = v.consumed_at AS same FROM accounts a, verifications v")
    assert row == {"email": "person@example.com", "same": True}


def test_an_address_that_was_confirmed_later_or_is_no_longer_known_stays(make: Factory, run: Run) -> None:
    inactive_account(make)
    by_hand(make, "UPDATE accounts SET email = 'later@example.com'")
    by_hand(
        make,
        "UPDATE verifications SET email = NULL, email_canonical = NULL, token_hash = NULL, anonymised_at = now()",
    )
    run()
    account = make.one("SELECT email, activated_at FROM accounts")
    assert (account["email"], account["activated_at"] is None) == ("later@example.com", False)


def test_what_a_provider_may_have_is_not_sent_again(make: Factory, run: Run) -> None:
    delivery_id = forgotten_hand_over(make)
    run()
    row = make.row(delivery_id)
    assert (row["status"], row["open_provider"]) == (State.UNKNOWN, SMTP.name)
    make.pass_time(delivery_id, seconds=1801)
    replay = make.claim(delivery_id)
    assert not make.hand_over(replay), "no mail is known to be the same"
    assert make.settle(replay, Outcome.NOT_SENT).state is State.UNKNOWN


def test_a_lease_that_forgot_a_hand_over_is_taken_back_once_it_is_mended(make: Factory, run: Run) -> None:
    lease = make.handed_over()
    forget_hand_over(make, lease.delivery_id, "lease_until = now() - interval '1 minute'")
    with pytest.raises(psycopg.errors.CheckViolation):
        make.reclaim()
    assert json.loads(run("--json").stdout)["hand_overs_forgotten"] == [ids.public("dlv", lease.delivery_id)]
    assert make.reclaim() == 1
    assert make.row(lease.delivery_id)["status"] == State.UNKNOWN


def test_a_forgotten_hand_over_of_a_dead_verification_is_remembered_before_its_gate_closes(
    make: Factory, run: Run
) -> None:
    delivery_id = forgotten_hand_over(make)
    by_hand(make, "UPDATE verifications SET status = 'cancelled'")
    run()
    row = make.row(delivery_id)
    assert (row["status"], row["gate_reason"]) == (State.UNKNOWN, "cancelled")


def test_a_gate_closes_for_the_reason_its_verification_has(make: Factory, run: Run) -> None:
    delivery_id = gate_left_open(make)
    run()
    row = make.row(delivery_id)
    assert (row["status"], row["gate_reason"]) == (State.CANCELLED, "cancelled")


def test_an_acceptance_that_was_not_recorded_is(make: Factory, run: Run) -> None:
    delivery_id = unrecorded_acceptance(make)
    run()
    row = make.row(delivery_id)
    assert (row["status"], row["evidence"]) == (State.ACCEPTED, "response")


def test_an_answered_unknown_is_the_next_sweeps(make: Factory, run: Run) -> None:
    delivery_id = answered_unknown(make)
    run()
    unknown = UnknownTerms("live", [SMTP], SENDER, unknown_budget=3)
    assert overdue.end_overdue_unknown(make.database, policy(), unknown).moved == 1
    assert make.row(delivery_id)["status"] == State.PENDING


def test_more_than_a_page_is_mended(make: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "_PAGE", 2)
    for _ in range(3):
        make.waiting()
        gate_left_open(make)
    assert len(repair.run(make.database)["gates_left_open"]) == 3


def test_what_is_well_is_left_alone(make: Factory, run: Run) -> None:
    for state in State:
        make.in_state(state)
    done = run()
    assert done.exit_code == 0 and "nothing is wrong" in done.stderr


def test_who_holds_the_account_is_waited_for(make: Factory, database_url: str, run: Run) -> None:
    gate_left_open(make)
    with holding(database_url, "SELECT 1 FROM accounts FOR UPDATE"):
        assert run().exit_code == 3, "within the time that any statement may take"
    assert len(json.loads(run("--json").stdout)["gates_left_open"]) == 1
