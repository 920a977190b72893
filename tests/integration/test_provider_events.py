"""What a provider says by itself: recorded once, applied at once, in whatever order it comes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from db import ids, provider_events, receipts
from db.delivery_state import Outcome
from db.errors import NotFound
from db.provider_events import Event, Kind
from tests.factories import SMTP, Factory
from tests.support.races import Later, holding, together, wait_until_blocked

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def event(delivery_id: UUID, **changes: Any) -> Event:
    values = {"provider": SMTP.name, "event_id": "evt_1", "kind": Kind.DELIVERED, "occurred_at": AT}
    return Event(delivery_id=delivery_id, **{**values, **changes})


def recorded(make: Factory) -> list[dict[str, Any]]:
    return make.all("SELECT * FROM provider_events ORDER BY received_at")


@pytest.mark.parametrize("kind", Kind)
def test_an_event_is_evidence_where_no_answer_came(make: Factory, kind: Kind) -> None:
    delivery_id = make.unknown().delivery_id
    assert provider_events.record(make.database, event(delivery_id, kind=kind, body={"status": "5.1.1"}))
    row = make.row(delivery_id)
    assert (row["status"], row["evidence"]) == ("accepted", "webhook")
    (kept,) = recorded(make)
    assert (kept["kind"], kept["occurred_at"], kept["body"]) == (kind, AT, {"status": "5.1.1"})
    assert kept["applied_at"] is not None


def test_the_same_event_changes_something_once(make: Factory) -> None:
    delivery_id = make.unknown().delivery_id
    answers = [provider_events.record(make.database, event(delivery_id)) for _ in range(3)]
    assert answers == [True, False, False]
    assert len(recorded(make)) == 1


def test_the_same_event_eight_times_at_once_is_recorded_once(make: Factory) -> None:
    delivery_id = make.unknown().delivery_id
    answers = together(8, lambda _: provider_events.record(make.database, event(delivery_id)))
    assert sorted(answers) == [False] * 7 + [True]
    assert len(recorded(make)) == 1


def test_two_providers_may_use_the_same_event_id(make: Factory) -> None:
    delivery_id = make.unknown().delivery_id
    assert provider_events.record(make.database, event(delivery_id))
    assert provider_events.record(make.database, event(delivery_id, provider="other/x"))


def test_an_event_before_the_answer_is_settled_is_not_undone_by_it(make: Factory) -> None:
    lease = make.handed_over()
    assert provider_events.record(make.database, event(lease.delivery_id))
    settled = make.settle(lease, Outcome.TRANSIENT, "temporarily_refused")
    assert settled.stale
    row = make.row(lease.delivery_id)
    assert (row["status"], row["evidence"]) == ("accepted", "webhook")


def test_an_event_waits_for_the_settle_that_holds_the_row(make: Factory, database_url: str) -> None:
    lease = make.handed_over()
    with holding(database_url, "SELECT 1 FROM email_outbox WHERE id = %s FOR UPDATE", lease.delivery_id):
        recording = Later(lambda: provider_events.record(make.database, event(lease.delivery_id)))
        wait_until_blocked(database_url)
        assert recorded(make) == []
    assert recording.result() is True


def test_an_event_after_the_answer_leaves_its_evidence(make: Factory) -> None:
    lease = make.handed_over()
    make.settle(lease, Outcome.ACCEPTED)
    assert provider_events.record(make.database, event(lease.delivery_id, kind=Kind.BOUNCED))
    assert make.row(lease.delivery_id)["evidence"] == "response"
    assert recorded(make)[0]["applied_at"] is not None


def test_a_mail_that_was_given_up_turns_out_to_have_been_taken(make: Factory) -> None:
    lease = make.handed_over()
    make.settle(lease, Outcome.PERMANENT, "mailbox_unavailable")
    provider_events.record(make.database, event(lease.delivery_id))
    row = make.row(lease.delivery_id)
    assert (row["status"], row["failure_code"]) == ("accepted", None)


@pytest.mark.parametrize("how", ["never handed over", "handed to another"])
def test_an_event_of_a_provider_that_cannot_have_the_mail_is_kept_and_not_applied(
    make: Factory, how: str
) -> None:
    handed_over = how == "handed to another"
    delivery_id = make.unknown().delivery_id if handed_over else make.waiting().delivery_id
    before = make.row(delivery_id)
    assert provider_events.record(make.database, event(delivery_id, provider="other/x"))
    assert make.row(delivery_id) == before
    assert [row["applied_at"] for row in recorded(make)] == [None]


def test_the_latest_word_is_shown_with_the_providers_own_time(make: Factory) -> None:
    lease = make.handed_over()
    make.settle(lease, Outcome.ACCEPTED)
    bounced = AT.replace(hour=13)
    for changes in (
        {"event_id": "2", "kind": Kind.BOUNCED, "occurred_at": bounced},
        {"event_id": "1", "kind": Kind.DELIVERED},
    ):
        provider_events.record(make.database, event(lease.delivery_id, **changes))
    shown = receipts.read(make.database, None, lease.verification_id)
    assert (shown.mail_event, shown.mail_event_at) == ("bounced", bounced)


def test_an_event_of_no_delivery_of_ours_is_refused(make: Factory) -> None:
    with pytest.raises(NotFound):
        provider_events.record(make.database, event(ids.new_id()))
    assert recorded(make) == []


def test_what_a_provider_says_of_a_mail_it_never_had_is_no_mail_event(make: Factory) -> None:
    made = make.waiting()
    provider_events.record(make.database, event(made.delivery_id, kind=Kind.BOUNCED))
    seen = receipts.read(make.database, made.client_id, made.verification_id)
    assert (seen.mail_event, seen.retryable) == (None, False)
