"""Every outcome rehearsed with a test client, through the real engine; time is moved, not waited for."""

from __future__ import annotations

from typing import Any

import pytest

from db import consumption, endings, ids, provider_events
from db.delivery_state import Evidence, State
from db.endings import CancelledBy
from db.errors import DatabaseUnavailable
from tasks import reports
from tests.factories import Factory
from tests.support.api import token_of
from tests.support.courier import make_courier
from tests.support.rehearsal import NOWHERE, Rehearsal
from tests.support.smtp_server import SmtpServer

WINDOW = 1801.0


@pytest.fixture
def rehearsal(make: Factory) -> Rehearsal:
    return Rehearsal(make)


def events(rehearsal: Rehearsal, delivery_id: Any) -> list[str]:
    return [entry.event for entry in rehearsal.receipt(delivery_id).timeline]


@pytest.mark.parametrize("address", ["accepted@example.com", "slow+1@host.example", "anybody@x.test"])
def test_an_accepted_mail_is_accepted_at_once(rehearsal: Rehearsal, address: str) -> None:
    delivery_id = rehearsal.send(address)
    row = rehearsal.make.row(delivery_id)
    assert (row["status"], row["evidence"], row["provider"]) == ("accepted", "response", "simulator")
    assert row["provider_message_id"]
    receipt = rehearsal.receipt(delivery_id)
    assert receipt.known.verification.mail_event is None
    assert receipt.next_action.code == "wait_for_recipient"


def test_a_transient_refusal_is_retried_and_then_accepted(rehearsal: Rehearsal) -> None:
    delivery_id = rehearsal.send("transient@example.com")
    assert rehearsal.make.row(delivery_id)["status"] == "pending"
    waiting = rehearsal.receipt(delivery_id).next_action
    assert (waiting.code, "Attempt 2 in 60 s" in waiting.text) == ("wait_for_retry", True)
    rehearsal.later(delivery_id, 61)
    assert rehearsal.outcomes(delivery_id) == ["transient", "accepted"]
    assert rehearsal.make.row(delivery_id)["status"] == "accepted"


def test_a_worker_that_died_meanwhile_changes_nothing_about_that(rehearsal: Rehearsal) -> None:
    """Attempts are counted in the database: another process refuses the first and takes the second."""
    delivery_id = rehearsal.create("transient@example.com")
    rehearsal.make.claim_by(rehearsal.courier, "test")
    rehearsal.later(delivery_id, 91)
    for courier in (make_courier(rehearsal.make.database, NOWHERE) for _ in range(2)):
        rehearsal.make.pass_time(delivery_id, seconds=61)
        courier.drain()
    assert rehearsal.outcomes(delivery_id) == ["lost", "transient", "accepted"]


def test_a_rejected_recipient_fails_for_good(rehearsal: Rehearsal) -> None:
    delivery_id = rehearsal.send("rejected@example.com")
    row = rehearsal.make.row(delivery_id)
    assert (row["status"], row["failure_category"], row["failure_code"]) == (
        "failed",
        "recipient",
        "mailbox_unavailable",
    )
    receipt = rehearsal.receipt(delivery_id)
    assert receipt.next_action.code == "act_on_failure"
    assert "no such mailbox" in receipt.next_action.text
    assert "attempt.handed_over" not in events(rehearsal, delivery_id)


def test_refused_content_fails_for_good(rehearsal: Rehearsal) -> None:
    delivery_id = rehearsal.send("content@example.com")
    row = rehearsal.make.row(delivery_id)
    assert (row["status"], row["failure_category"]) == ("failed", "content")
    assert "took offence" in rehearsal.receipt(delivery_id).next_action.text


def test_an_exhausted_budget_ends_it(rehearsal: Rehearsal) -> None:
    delivery_id = rehearsal.send("exhausted@example.com")
    for seconds in (61, 301):
        rehearsal.later(delivery_id, seconds)
    row = rehearsal.make.row(delivery_id)
    assert (row["status"], row["failure_category"]) == ("failed", "exhausted")
    assert rehearsal.outcomes(delivery_id) == ["transient"] * 3
    assert rehearsal.receipt(delivery_id).known.verification.retryable


def test_an_unknown_outcome_is_looked_up_and_found(rehearsal: Rehearsal) -> None:
    delivery_id = rehearsal.send("unknown@example.com")
    row = rehearsal.make.row(delivery_id)
    assert (row["status"], row["open_provider"]) == ("unknown", "simulator")
    assert rehearsal.receipt(delivery_id).next_action.code == "wait_for_evidence"
    rehearsal.later(delivery_id, 31)
    row = rehearsal.make.row(delivery_id)
    assert (row["status"], row["evidence"], row["replay_count"]) == ("accepted", "lookup", 0)
    assert rehearsal.outcomes(delivery_id) == ["unknown", "not_sent"]
    assert "simulator" in str(rehearsal.receipt(delivery_id).timeline)


def test_an_unresolved_one_is_repeated_once_and_then_given_up(rehearsal: Rehearsal) -> None:
    delivery_id = rehearsal.send("unresolved@example.com")
    rehearsal.later(delivery_id, 31)
    assert rehearsal.outcomes(delivery_id) == ["unknown", "not_sent"], "not found, which proves nothing"
    rehearsal.later(delivery_id, WINDOW)
    row = rehearsal.make.row(delivery_id)
    assert (row["status"], row["replay_count"]) == ("unknown", 1)
    rehearsal.later(delivery_id, WINDOW)
    row = rehearsal.make.row(delivery_id)
    assert (row["status"], row["failure_category"], row["failure_code"]) == (
        "failed",
        "unresolved",
        "outcome_unresolved",
    )
    assert "spam folder" in rehearsal.receipt(delivery_id).next_action.text


def test_an_unresolved_one_whose_gate_is_closed_is_not_repeated(rehearsal: Rehearsal) -> None:
    delivery_id = rehearsal.send("unresolved@example.com")
    row = rehearsal.make.row(delivery_id)
    endings.cancel(rehearsal.make.database, row["client_id"], row["verification_id"], by=CancelledBy.CLIENT)
    rehearsal.later(delivery_id, WINDOW)
    row = rehearsal.make.row(delivery_id)
    assert (row["status"], row["replay_count"]) == ("failed", 0)


@pytest.mark.parametrize(
    ("name", "kind", "next_action", "retryable"),
    [
        ("delivered", "delivered", "wait_for_recipient", False),
        ("bounce", "bounced", "request_again", True),
        ("complaint", "complained", "none", False),
    ],
)
def test_what_the_provider_reports_is_recorded_once_and_shown(
    rehearsal: Rehearsal, name: str, kind: str, next_action: str, retryable: bool
) -> None:
    delivery_id = rehearsal.create(f"{name}@example.com")
    lease = rehearsal.make.claim_by(rehearsal.courier, "test")
    rehearsal.courier.deliver(lease)
    receipt = rehearsal.receipt(delivery_id)
    shown = receipt.known.verification
    (event,) = receipt.known.events
    assert (event.provider, event.kind, event.applied_at is not None) == ("simulator", kind, True)
    assert (shown.mail_event, shown.mail_event_at) == (kind, event.received_at)
    assert (receipt.next_action.code, shown.retryable) == (next_action, retryable)
    assert events(rehearsal, delivery_id)[-1] == f"provider.{kind}", "after it was accepted"
    assert rehearsal.make.row(delivery_id)["evidence"] == "response"
    reports.record_reports(
        rehearsal.make.database, rehearsal.courier.routes["test"].providers["simulator"], lease
    )
    assert len(rehearsal.receipt(delivery_id).known.events) == 1


def test_a_report_that_cannot_be_written_is_lost_like_a_webhook(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mail was taken all the same, and the next one is sent."""

    def away(*_: object) -> bool:
        raise DatabaseUnavailable

    monkeypatch.setattr(provider_events, "record", away)
    delivery_ids = [rehearsal.create(f"bounce+{number}@example.com") for number in range(2)]
    rehearsal.courier.drain()
    assert {rehearsal.make.row(delivery_id)["status"] for delivery_id in delivery_ids} == {"accepted"}


def test_the_person_may_use_the_token_of_a_mail_whose_fate_is_unknown(rehearsal: Rehearsal) -> None:
    delivery_id = rehearsal.send("unresolved@example.com")
    verification_id = ids.public("ver", rehearsal.make.row(delivery_id)["verification_id"])
    token = token_of(rehearsal.make.database, verification_id)
    consumed = consumption.consume(rehearsal.make.database, token)
    assert not consumed.leaked
    row = rehearsal.make.row(delivery_id)
    assert (row["status"], row["evidence"]) == (State.ACCEPTED, Evidence.CONSUMED)


def test_nothing_leaves_the_machine(make: Factory) -> None:
    with SmtpServer() as server:
        rehearsal = Rehearsal(make, make_courier(make.database, f"smtp://127.0.0.1:{server.port}"))
        for name in ("accepted", "unknown", "bounce", "anybody"):
            rehearsal.send(f"{name}@example.com")
        assert (server.connections, server.messages) == (0, [])
