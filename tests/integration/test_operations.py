"""What operators may do to a delivery: what is allowed, what it comes to, what they are told, and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from click.testing import Result

import app
from app import receipt_text
from db import consumption, endings, ids, leases, operations, provider_events, receipts, stakes
from db.delivery_state import Outcome, State
from db.errors import NotFound, OperationRefused
from db.operations import Operator
from db.phases import CancelledBy
from db.provider_events import Event, Kind
from db.stakes import RetryTerms, Verdict
from tests.factories import KEYED, SMTP, Factory, terms
from tests.support.api import token_of
from tests.support.courier import create

BY = Operator("on-call", "the server's log says so")
TERMS = RetryTerms(delivery_deadline=14_400.0, min_token_life=300.0)
Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str) -> Run:
    def call(*arguments: str, **given: Any) -> Result:
        environment = {"DATABASE_URL": database_url, "USER": "on-call"}
        return app.application.test_cli_runner().invoke(
            args=("outbox", *arguments), env=environment, catch_exceptions=False, **given
        )

    return call


def retry(make: Factory, delivery_id: UUID) -> State:
    return operations.retry(make.database, delivery_id, BY, TERMS).to_state


def resolve(make: Factory, delivery_id: UUID, verdict: Verdict) -> State:
    return operations.resolve(make.database, delivery_id, verdict, BY).to_state


def public(delivery_id: UUID) -> str:
    return ids.public("dlv", delivery_id)


def exhausted(make: Factory) -> UUID:
    """A delivery that failed with some of its budgets spent."""
    lease = make.handed_over()
    make.settle(lease, Outcome.TRANSIENT, "not_now")
    make.pass_time(lease.delivery_id, seconds=61)
    again = make.claim(lease.delivery_id)
    make.settle(again, Outcome.PERMANENT, "mailbox_unavailable")
    return lease.delivery_id


# Retry


def test_a_retry_begins_anew_in_the_same_row(make: Factory) -> None:
    delivery_id = exhausted(make)
    assert retry(make, delivery_id) is State.PENDING
    row = make.row(delivery_id)
    assert (row["attempt_count"], row["lost_count"], row["replay_count"]) == (0, 0, 0)
    assert row["lease_token"] == 2, "the fence only grows"
    assert row["failure_code"] is None and row["gate_reason"] is None
    lease = make.claim(delivery_id)
    assert lease.token == 3
    assert make.hand_over(lease)


def test_a_retried_mail_has_its_deadline_or_what_life_its_token_has_left(make: Factory) -> None:
    delivery_id = make.waiting(send_before=60.0, expires_in=3600.0).delivery_id
    make.settle(make.claim(delivery_id), Outcome.PERMANENT, "mailbox_unavailable")
    retry(make, delivery_id)
    left = make.one(
        "SELECT extract(epoch FROM send_before - clock_timestamp())::float AS s FROM email_outbox"
    )["s"]
    assert 3290 < left <= 3300


@pytest.mark.parametrize("state", [State.SENDING, State.UNKNOWN, State.ACCEPTED])
def test_what_a_provider_may_have_is_not_sent_again_as_new(make: Factory, state: State) -> None:
    delivery_id = make.in_state(state)
    before = make.row(delivery_id)
    with pytest.raises(OperationRefused):
        retry(make, delivery_id)
    assert make.row(delivery_id) == before


def test_what_failed_unresolved_is_not_sent_again_as_new(make: Factory) -> None:
    lease = make.unknown()
    resolve(make, lease.delivery_id, Verdict.FAILED)
    with pytest.raises(OperationRefused, match="may have that mail"):
        retry(make, lease.delivery_id)


@pytest.mark.parametrize("ending", ["consumed", "cancelled", "expired"])
def test_a_dead_verification_gets_no_mail(make: Factory, ending: str) -> None:
    delivery_id = exhausted(make)
    verification_id = make.row(delivery_id)["verification_id"]
    if ending == "cancelled":
        endings.cancel(make.database, None, verification_id, by=CancelledBy.CLIENT)
    else:
        consumed = "clock_timestamp()" if ending == "consumed" else "NULL"
        make.execute(f"UPDATE verifications SET status = '{ending}', consumed_at = {consumed}")
    with pytest.raises(OperationRefused, match=ending):
        retry(make, delivery_id)


def test_a_token_that_is_about_to_run_out_gets_no_mail(make: Factory) -> None:
    delivery_id = make.waiting(send_before=60.0, expires_in=299.0).delivery_id
    make.settle(make.claim(delivery_id), Outcome.PERMANENT, "mailbox_unavailable")
    with pytest.raises(OperationRefused, match="too short"):
        retry(make, delivery_id)


# Resolve


@pytest.mark.parametrize("verdict", Verdict)
def test_an_unknown_outcome_is_whatever_an_operator_knows(make: Factory, verdict: Verdict) -> None:
    lease = make.unknown()
    assert resolve(make, lease.delivery_id, verdict) == verdict.value
    row = make.row(lease.delivery_id)
    assert row["status"] == verdict.value
    if verdict is Verdict.ACCEPTED:
        assert row["evidence"] == "operator"
    if verdict is Verdict.FAILED:
        assert (row["failure_category"], row["open_provider"]) == ("unresolved", SMTP.name)
    if verdict is Verdict.PENDING:
        assert make.attempts(lease.delivery_id)[0]["outcome"] == "not_sent"
        assert row["open_provider"] is None
        assert make.claim(lease.delivery_id, KEYED).provider == KEYED.name, "any provider may send it now"


def test_resolved_as_not_sent_with_its_gate_closed_it_ends(make: Factory) -> None:
    lease = make.unknown()
    endings.cancel(make.database, None, lease.verification_id, by=CancelledBy.CLIENT)
    assert resolve(make, lease.delivery_id, Verdict.PENDING) is State.CANCELLED


def test_evidence_after_a_wrong_verdict_still_counts(make: Factory) -> None:
    lease = make.unknown()
    resolve(make, lease.delivery_id, Verdict.FAILED)
    provider_events.record(make.database, Event(SMTP.name, "e1", lease.delivery_id, Kind.DELIVERED))
    assert make.row(lease.delivery_id)["status"] == State.ACCEPTED


@pytest.mark.parametrize("state", sorted(set(State) - {State.UNKNOWN}))
def test_only_an_unknown_outcome_can_fail_or_go_back(make: Factory, state: State) -> None:
    delivery_id = make.in_state(state)
    for verdict in (Verdict.FAILED, Verdict.PENDING):
        with pytest.raises(OperationRefused):
            resolve(make, delivery_id, verdict)


def test_what_no_provider_was_given_cannot_have_been_accepted(make: Factory) -> None:
    with pytest.raises(OperationRefused, match="never handed"):
        resolve(make, make.in_state(State.PENDING), Verdict.ACCEPTED)


# Cancel


def test_an_operator_cancels_as_the_client_would_and_the_receipt_says_who(make: Factory) -> None:
    made = make.waiting()
    assert operations.cancel(make.database, made.delivery_id, BY).to_state is State.CANCELLED
    row = make.one("SELECT status, cancelled_by FROM verifications")
    assert row == {"status": "cancelled", "cancelled_by": "operator"}


def test_what_was_confirmed_cannot_be_cancelled(make: Factory) -> None:
    delivery_id = make.in_state(State.ACCEPTED)
    make.execute("UPDATE verifications SET status = 'consumed', consumed_at = clock_timestamp()")
    with pytest.raises(OperationRefused, match="confirmed"):
        operations.cancel(make.database, delivery_id, BY)


def test_what_is_not_there_is_not_found(make: Factory) -> None:
    for act in (lambda d: retry(make, d), lambda d: resolve(make, d, Verdict.FAILED)):
        with pytest.raises(NotFound):
            act(ids.new_id())


# What is said before, and kept after


def test_what_is_at_stake_names_the_hand_over_and_the_evidence(make: Factory) -> None:
    lease = make.unknown()
    seen = operations.preview(
        make.database, lease.delivery_id, partial(stakes.of_resolve, verdict=Verdict.PENDING)
    )
    assert f"A hand-over to {SMTP.name} at " in seen.at_stake
    assert "can send a second one" in seen.at_stake
    assert "Evidence so far: none." in seen.at_stake


def test_what_changed_since_it_was_shown_is_not_acted_on(make: Factory) -> None:
    lease = make.unknown()
    weigh = partial(stakes.of_resolve, verdict=Verdict.ACCEPTED)
    seen = operations.preview(make.database, lease.delivery_id, weigh)
    make.pass_time(lease.delivery_id, seconds=1801)
    assert leases.claim(make.database, terms())
    with pytest.raises(OperationRefused, match="it changed meanwhile"):
        operations.resolve(make.database, lease.delivery_id, Verdict.ACCEPTED, BY, seen=seen)


def test_the_receipt_says_who_did_what_and_why(make: Factory) -> None:
    lease = make.unknown()
    resolve(make, lease.delivery_id, Verdict.FAILED)
    receipt = receipts.read_receipt(make.database, None, lease.verification_id)
    (entry,) = [entry for entry in receipt.timeline if entry.event == "operator.resolve"]
    assert "on-call" in entry.by and "the server's log says so" in entry.detail
    assert "operator.resolve" in receipt_text.render(receipt)


def test_a_reason_that_holds_an_address_or_a_token_is_kept_without_it(make: Factory) -> None:
    made = make.waiting(email="ada@example.com")
    by = Operator("ada@example.com", "ada@example.com complained about 0123-4567-89AB-CDEF")
    operations.cancel(make.database, made.delivery_id, by)
    kept = make.one("SELECT operator, reason FROM operator_actions")
    assert "ada@" not in str(kept) and "89AB" not in str(kept)


# The commands


def test_the_command_warns_asks_and_does_nothing_without_a_yes(make: Factory, run: Run) -> None:
    lease = make.unknown()
    given = ("resolve", public(lease.delivery_id), "--as", "pending", "--reason", "log says so")
    refused = run(*given, input="n\n")
    assert refused.exit_code == 1
    assert "second one" in refused.stderr and "nothing was changed" in refused.stderr
    assert make.row(lease.delivery_id)["status"] == State.UNKNOWN
    assert run(*given, input="").exit_code == 1, "nobody is there to answer"
    assert run(*given, input="y\n").exit_code == 0
    assert make.row(lease.delivery_id)["status"] == State.PENDING


def test_the_command_answers_in_json_and_takes_a_verifications_id(make: Factory, run: Run) -> None:
    lease = make.unknown()
    verification_id = ids.public("ver", lease.verification_id)
    done = run("resolve", verification_id, "--as", "accepted", "--reason", "seen", "--yes", "--json")
    told = json.loads(done.stdout)
    assert (told["from_state"], told["to_state"], told["action"]) == ("unknown", "accepted", "resolve")
    assert make.one("SELECT operator FROM operator_actions")["operator"] == "on-call"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("retry", "{}", "--yes", "--reason", "x"), 1),
        (("retry", "{}", "--yes"), 2),
        (("retry", "nonsense", "--yes", "--reason", "x"), 2),
        (("resolve", "{}", "--as", "sent", "--yes", "--reason", "x"), 2),
        (("cancel", "dlv_" + "0" * 32, "--yes", "--reason", "x"), 1),
    ],
)
def test_what_is_refused_has_a_sentence_and_an_exit_code(
    make: Factory, run: Run, arguments: tuple[str, ...], code: int
) -> None:
    delivery_id = make.in_state(State.ACCEPTED)
    done = run(*(argument.format(public(delivery_id)) for argument in arguments))
    assert done.exit_code == code and "Error" in done.stderr and not done.stdout


def test_a_mail_that_was_retried_confirms_as_any_other(make: Factory) -> None:
    """The token is the verification's: the same link, in the same mail."""
    made = create(make.database, make.key())
    lease = make.claim(made.delivery_id)
    make.settle(lease, Outcome.PERMANENT, "mailbox_unavailable")
    retry(make, made.delivery_id)
    again = make.claim(made.delivery_id)
    assert make.hand_over(again)
    make.settle(again, Outcome.ACCEPTED)
    assert not consumption.consume(make.database, token_of(make.database, ids.public("ver", made.id))).leaked
