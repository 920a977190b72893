"""Receipts: all that is known, in order, and what happens next, for a delivery in every state."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

import pytest

from app import presentation, receipt_text
from app.schemas import ReceiptSchema
from db import advice, ids, receipts, retention
from db.delivery_state import GateReason, Outcome, State
from db.errors import NotFound
from db.phases import Phase
from db.provider_pauses import Refusal
from db.views import Receipt, clock
from tests.factories import KEYED, SEARCHABLE, SENDER, SMTP, Factory, policy


def receipt(make: Factory, delivery_id: UUID) -> Receipt:
    verification_id = make.row(delivery_id)["verification_id"]
    return receipts.read_receipt(make.database, make.client(), verification_id)


def events(found: Receipt) -> list[str]:
    return [entry.event for entry in found.timeline]


STATES = {
    State.PENDING: (Phase.QUEUED, "wait_for_worker"),
    State.SENDING: (Phase.LEASED, "wait_for_result"),
    State.UNKNOWN: (Phase.AWAITING_RECONCILIATION, "wait_for_evidence"),
    State.ACCEPTED: (Phase.DELIVERED, "wait_for_recipient"),
    State.FAILED: (Phase.FAILED, "act_on_failure"),
    State.EXPIRED: (Phase.EXPIRED, "request_again"),
    State.CANCELLED: (Phase.CANCELLED, "request_again"),
}


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_phase_a_next_action_and_both_forms(make: Factory, state: State) -> None:
    found = receipt(make, make.in_state(state))
    phase, code = STATES[state]
    assert (found.known.verification.phase, found.next_action.code) == (phase, code)
    assert found.next_action.text.endswith(".")
    shown = ReceiptSchema().dump(presentation.receipt(found))
    text = receipt_text.render(found)
    for form in (json.dumps(shown), text):
        assert "person@example.com" not in form
        assert "p***@example.com" in form
    assert ids.public("dlv", found.known.delivery.id) in text
    assert code in text
    assert shown["delivery"]["status"] == shown["verification"]["delivery_status"] == state


def test_the_timeline_tells_the_whole_story_in_order(make: Factory) -> None:
    lease = make.handed_over()
    make.settle(lease, Outcome.ACCEPTED)
    found = receipt(make, lease.delivery_id)
    assert events(found) == [
        "verification.requested",
        "delivery.pending",
        "attempt.claimed",
        "attempt.handed_over",
        "attempt.accepted",
        "delivery.accepted",
    ]
    assert [entry.at for entry in found.timeline] == sorted(entry.at for entry in found.timeline)
    by = {entry.event: entry.by for entry in found.timeline}
    assert by["verification.requested"] == "client"
    assert by["attempt.claimed"] == f"worker {lease.owner}"
    details = {entry.event: entry.detail or "" for entry in found.timeline}
    assert SMTP.name in details["attempt.handed_over"]
    assert "evidence: response" in details["delivery.accepted"]


def test_an_attempt_that_failed_says_with_what_and_what_to_do(make: Factory) -> None:
    lease = make.handed_over()
    make.settle(lease, Outcome.TRANSIENT, "mailbox_full")
    found = receipt(make, lease.delivery_id)
    (entry,) = (entry for entry in found.timeline if entry.event == "attempt.transient")
    assert "mailbox_full" in (entry.detail or "")
    assert found.next_action.code == "wait_for_retry"
    assert found.next_action.at == found.known.delivery.next_attempt_at
    assert re.search(
        r"Attempt 2 in \d+ s\. The last one ended with mailbox_full\. The mailbox is full\.$",
        found.next_action.text,
    )


@pytest.mark.parametrize("code", ["temporarily_refused", "smtp_timeout", "mailbox_full", "internal_error"])
def test_a_delivery_that_still_retries_asks_for_no_new_request(make: Factory, code: str) -> None:
    lease = make.handed_over()
    make.settle(lease, Outcome.TRANSIENT, code)
    text = receipt_text.render(receipt(make, lease.delivery_id))
    assert (advice.cause(code) or "") in text
    assert advice.WORDS[code].advice not in text
    assert "new verification" not in text


def test_a_delivery_that_ended_so_has_cause_and_advice(make: Factory) -> None:
    lease = make.handed_over()
    make.settle(lease, Outcome.TRANSIENT, "temporarily_refused", policy=policy(max_attempts=1))
    found = receipt(make, lease.delivery_id)
    words = advice.WORDS["temporarily_refused"]
    assert found.next_action.text == f"{words.cause} {words.advice}"


def test_a_failure_has_category_code_and_sentence(make: Factory) -> None:
    found = receipt(make, make.in_state(State.FAILED))
    failure = found.known.verification.failure
    assert failure is not None
    assert (failure.category, failure.code) == ("recipient", "mailbox_unavailable")
    assert failure.action == found.next_action.text


def test_a_wait_that_is_too_long_sends_somebody_to_look(make: Factory) -> None:
    made = make.waiting()
    assert "due since 0 s" in receipt(make, made.delivery_id).next_action.text
    make.pass_time(made.delivery_id, minutes=10)
    found = receipt(make, made.delivery_id)
    assert found.next_action.code == "check_workers"
    assert "due since 10 min" in found.next_action.text


def test_a_backlog_that_workers_are_at_is_no_outage(make: Factory) -> None:
    made = make.waiting()
    make.pass_time(made.delivery_id, minutes=10)
    make.execute("INSERT INTO sweep_runs (slot, worker, trigger) VALUES (1, 'host:1', 'beat')")
    found = receipt(make, made.delivery_id)
    assert (found.next_action.code, "taken up in its turn" in found.next_action.text) == (
        "wait_for_worker",
        True,
    )
    make.execute("UPDATE sweep_runs SET started_at = clock_timestamp() - interval '46 seconds'")
    assert receipt(make, made.delivery_id).next_action.code == "check_workers"


def pause(make: Factory, provider: str = SMTP.name, sender: str = SENDER, minutes: int = 10) -> None:
    make.execute(
        "INSERT INTO provider_status (provider, sender, paused_until, kind, code)"
        " VALUES (%s, %s, clock_timestamp() + make_interval(mins => %s), 'config', 'login_refused')",
        provider,
        sender,
        minutes,
    )


def test_a_paused_provider_is_why_a_due_delivery_waits(make: Factory) -> None:
    made = make.waiting()
    pause(make)
    found = receipt(make, made.delivery_id)
    assert found.next_action.code == "wait_for_provider"
    assert f"{SMTP.name} is paused" in found.next_action.text
    assert "login_refused" in found.next_action.text
    assert advice.WORDS["login_refused"].advice in found.next_action.text
    assert SENDER not in found.next_action.text


def test_a_due_delivery_is_not_held_back_while_another_provider_is_in_use(make: Factory) -> None:
    make.settle(make.handed_over(KEYED), Outcome.ACCEPTED)
    made = make.waiting()
    pause(make)
    found = receipt(make, made.delivery_id)
    assert found.next_action.code == "wait_for_worker"
    assert f"{SMTP.name} is paused" in found.next_action.text
    assert "Another provider may take it" in found.next_action.text


def test_a_provider_that_takes_mail_since_is_not_paused_for_this_sender(make: Factory) -> None:
    pause(make, sender="old@countersign.example")
    make.settle(make.handed_over(), Outcome.ACCEPTED)
    found = receipt(make, make.waiting().delivery_id)
    assert found.next_action.code == "wait_for_worker"
    assert "o***@countersign.example" in found.next_action.text


def refused(make: Factory, minutes: int) -> UUID:
    """A delivery that was refused together with us; the pause lasts `minutes`."""
    lease = make.leased()
    refusal = Refusal("config", "login_refused", minutes * 60.0, (60.0,))
    make.settle(lease, Outcome.REFUSED_US, "login_refused", refusal=refusal)
    return lease.delivery_id


def test_only_pauses_of_this_deliverys_sender_matter(make: Factory) -> None:
    delivery_id = refused(make, 10)
    pause(make, provider=KEYED.name, sender="other@countersign.example")
    found = receipt(make, delivery_id)
    assert found.next_action.code == "wait_for_provider"
    assert SMTP.name in found.next_action.text
    assert KEYED.name not in found.next_action.text


@pytest.mark.parametrize("minutes", [1, 10])
def test_a_retry_whose_provider_is_paused_says_both(make: Factory, minutes: int) -> None:
    lease = make.leased()
    make.settle(lease, Outcome.TRANSIENT, "temporarily_refused", policy=policy(backoff=(300.0,)))
    pause(make, minutes=minutes)
    found = receipt(make, lease.delivery_id)
    assert found.next_action.code == "wait_for_retry"
    assert "Attempt 2 in" in found.next_action.text
    assert f"{SMTP.name} is paused" in found.next_action.text
    due = found.known.delivery.next_attempt_at
    assert due is not None
    assert found.next_action.at == max(due, found.known.pauses[0].until)


def test_an_unanswered_hand_over_names_only_the_pause_of_its_own_provider(make: Factory) -> None:
    lease = make.unknown()
    pause(make, provider=KEYED.name)
    assert "is paused" not in receipt(make, lease.delivery_id).next_action.text
    pause(make)
    text = receipt(make, lease.delivery_id).next_action.text
    assert f"{SMTP.name} is paused" in text
    assert KEYED.name not in text


def test_a_pause_of_an_operator_is_called_that(make: Factory) -> None:
    made = make.waiting()
    pause(make)
    make.execute("UPDATE provider_status SET kind = 'operator'")
    assert "by an operator" in receipt(make, made.delivery_id).next_action.text


@pytest.mark.parametrize("provider_has_it", [True, False])
def test_a_cancelled_verification_asks_nobody_to_ask_again(make: Factory, provider_has_it: bool) -> None:
    delivery_id = make.in_state(State.ACCEPTED if provider_has_it else State.CANCELLED)
    make.execute("UPDATE verifications SET status = 'cancelled'")
    found = receipt(make, delivery_id)
    assert found.next_action.code == "none"
    assert "only if the person asks" in found.next_action.text
    assert "by its client or by a recipient" in found.next_action.text, "an older release did not say which"
    assert "request" not in found.next_action.text.lower()
    (entry,) = (entry for entry in found.timeline if entry.event == "verification.cancelled")
    assert entry.by == "client or recipient"


@pytest.mark.parametrize("attempted", [True, False])
def test_a_token_used_before_any_mail_left_is_said_plainly(make: Factory, attempted: bool) -> None:
    if attempted:
        lease = make.leased()
        make.settle(lease, Outcome.NOT_SENT, "shutting_down")
        delivery_id = lease.delivery_id
    else:
        delivery_id = make.waiting().delivery_id
    make.close_gate(delivery_id, GateReason.CONSUMED)
    make.execute("UPDATE verifications SET status = 'consumed', consumed_at = clock_timestamp()")
    found = receipt(make, delivery_id)
    assert found.next_action.code == "token_leaked"
    assert "although no mail" in found.next_action.text
    assert "TOKEN_KEYS" in found.next_action.text
    (entry,) = (entry for entry in found.timeline if entry.event == "verification.consumed")
    assert (entry.by, entry.detail) == ("somebody", "no mail had left with the token")


def test_a_lease_that_ran_out_waits_for_the_sweep(make: Factory) -> None:
    lease = make.handed_over()
    make.pass_time(lease.delivery_id, seconds=91)
    found = receipt(make, lease.delivery_id)
    assert found.next_action.code == "wait_for_sweep"
    assert lease.owner in found.next_action.text
    make.reclaim()
    assert events(receipt(make, lease.delivery_id))[-2:] == ["attempt.lost", "delivery.unknown"]


def test_a_lease_whose_holder_may_be_dead_says_what_its_end_means(make: Factory) -> None:
    claimed = make.leased()
    end = clock(make.row(claimed.delivery_id)["lease_until"])
    text = receipt(make, claimed.delivery_id).next_action.text
    assert f"If that is still so at {end}, nothing was sent" in text

    handed_over = make.handed_over()
    end = clock(make.row(handed_over.delivery_id)["lease_until"])
    text = receipt(make, handed_over.delivery_id).next_action.text
    assert f"If none has come by {end} it counts as unknown" in text
    assert "not sent again blindly" in text

    make.settle(handed_over, Outcome.UNKNOWN)
    make.pass_time(handed_over.delivery_id, seconds=1801)
    make.claim(handed_over.delivery_id)
    text = receipt(make, handed_over.delivery_id).next_action.text
    assert f"{SMTP.name} may have the mail from before" in text


@pytest.mark.parametrize(
    ("outcome", "code", "words"),
    [
        (Outcome.ACCEPTED, "accepted", "it has the mail"),
        (Outcome.NOT_SENT, "lookup_not_found", "does not know the mail (yet)"),
        (Outcome.NOT_SENT, "lookup_failed", "no answer that could be used"),
    ],
)
def test_a_look_up_is_told_as_one_and_never_as_a_mail_not_sent(
    make: Factory, outcome: Outcome, code: str, words: str
) -> None:
    lease = make.handed_over(SEARCHABLE)
    make.settle(lease, Outcome.UNKNOWN, policy=policy(SEARCHABLE))
    make.pass_time(lease.delivery_id, seconds=31)
    make.settle(make.claim(lease.delivery_id, SEARCHABLE), outcome, code, policy=policy(SEARCHABLE))
    found = receipt(make, lease.delivery_id)
    (entry,) = (entry for entry in found.timeline if entry.event == "attempt.looked_up")
    assert words in (entry.detail or "")
    assert "attempt.not_sent" not in events(found)
    assert "nothing was sent" not in receipt_text.render(found)
    assert found.known.attempts[-1].outcome is Outcome.NOT_SENT


def test_a_lost_lease_is_said_to_spend_no_try(make: Factory) -> None:
    lease = make.leased()
    make.pass_time(lease.delivery_id, seconds=91)
    make.reclaim()
    text = receipt_text.render(receipt(make, lease.delivery_id))
    assert "0 spent, 0 repeated, 1 lost with a worker that died or was too late, which spends no try" in text


def test_an_unknown_whose_gate_is_closed_will_not_be_repeated(make: Factory) -> None:
    lease = make.unknown()
    assert "repeated with the same bytes" in receipt(make, lease.delivery_id).next_action.text
    make.close_gate(lease.delivery_id, GateReason.CANCELLED)
    found = receipt(make, lease.delivery_id)
    assert "will not be repeated" in found.next_action.text
    assert found.known.delivery.send_before is None
    assert found.known.delivery.gate_reason == GateReason.CANCELLED


@pytest.mark.parametrize(
    ("status", "extra", "code", "words"),
    [
        ("consumed", "consumed_at = clock_timestamp()", "done", "confirmed"),
        ("expired", "locale = NULL", "request_again", "being found out"),
        ("cancelled", "locale = NULL", "none", "being found out"),
    ],
)
def test_the_verification_speaks_before_its_delivery(
    make: Factory, status: str, extra: Any, code: str, words: str
) -> None:
    lease = make.unknown()
    make.execute(
        f"UPDATE verifications SET status = '{status}', {extra} WHERE id = %s", lease.verification_id
    )
    found = receipt(make, lease.delivery_id)
    assert found.next_action.code == code
    assert words in found.next_action.text
    assert f"verification.{status}" in events(found)


def _event(make: Factory, delivery_id: UUID, kind: str, minutes_ago: int) -> None:
    make.execute(
        "INSERT INTO provider_events (id, provider, event_id, delivery_id, kind, occurred_at, applied_at, body)"
        " VALUES (%s, %s, %s, %s, %s, clock_timestamp() - make_interval(mins => %s), clock_timestamp(), '{}')",
        ids.new_id(),
        SMTP.name,
        f"{kind}-{minutes_ago}",
        delivery_id,
        kind,
        minutes_ago,
    )


@pytest.mark.parametrize(("kind", "code"), [("bounced", "request_again"), ("complained", "none")])
def test_the_latest_provider_event_counts_whichever_came_in_last(make: Factory, kind: str, code: str) -> None:
    delivery_id = make.in_state(State.ACCEPTED)
    _event(make, delivery_id, kind, 1)
    _event(make, delivery_id, "delivered", 5)
    _event(make, delivery_id, "opened", 0)
    found = receipt(make, delivery_id)
    assert found.known.verification.mail_event == kind
    assert found.next_action.code == code
    assert found.known.verification.retryable is (kind == "bounced")
    assert len(found.known.events) == 3


def test_another_clients_verification_is_not_found_and_an_operator_sees_all(make: Factory) -> None:
    made = make.waiting()
    for read in (receipts.read, receipts.read_receipt):
        with pytest.raises(NotFound):
            read(make.database, ids.new_id(), made.verification_id)
        assert read(make.database, None, made.verification_id)


def test_an_anonymised_verification_is_still_readable(make: Factory) -> None:
    delivery_id = make.in_state(State.FAILED)
    make.execute("UPDATE verifications SET status = 'expired'")
    assert retention.anonymise(make.database, retention=0).anonymised == 1
    found = receipt(make, delivery_id)
    assert found.known.verification.email_masked == "***"
    assert "***" in receipt_text.render(found)


def test_an_account_id_that_is_an_address_does_not_reach_a_ticket(make: Factory) -> None:
    made = make.waiting()
    make.execute("UPDATE accounts SET external_id = 'ada@example.com'")
    text = receipt_text.render(receipt(make, made.delivery_id))
    assert "ada@example.com" not in text
