"""What is forgotten once a verification has been over for the retention, and what stays to answer and to explain."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from db import consumption, ids, operations, provider_events, receipts, retention
from db.delivery_state import Outcome, State
from db.errors import TokenInvalid
from db.operations import Operator
from db.provider_events import Event, Kind
from db.stakes import Verdict
from tasks import sweep
from tasks.delivery import Courier
from tests.factories import SMTP, Factory
from tests.support.api import Api, make_api
from tests.support.courier import make_courier

DAYS = 86_400.0
CANARY = "canary-person@example.com"
NOWHERE = "smtp://127.0.0.1:1"


@pytest.fixture
def api(make: Factory) -> Api:
    return make_api(make.database, "shop", return_urls=("https://shop.example/done",))


def anonymise(make: Factory, days: float = 30.0, **limits: Any) -> int:
    return retention.anonymise(make.database, retention=days * DAYS, **limits).anonymised


def grow_old(make: Factory, days: float = 31.0) -> None:
    """Let days pass for all that there is."""
    for table, columns in {
        "verifications": ("created_at", "expires_at", "consumed_at"),
        "email_outbox": ("created_at", "completed_at"),
        "state_changes": ("at",),
    }.items():
        moved = ", ".join(f"{column} = {column} - make_interval(days => %s)" for column in columns)
        make.execute(f"UPDATE {table} SET {moved}", *[int(days)] * len(columns))


def anonymised_by_a_sweep(make: Factory, courier: Courier) -> int:
    make.execute("DELETE FROM sweep_runs")  # so that its slot of time is free
    counts = sweep.run_once(courier, trigger="timer")
    assert counts is not None
    return counts["anonymised"]


def finished(make: Factory, api: Api, **body: Any) -> UUID:
    """A verification that was requested with everything there is, and cancelled."""
    made = api.create(
        ids.new_id().hex,
        email=CANARY,
        account_id=ids.new_id().hex,
        metadata={"note": "canary-note"},
        return_url="https://shop.example/done?canary",
        **body,
    ).get_json()
    cancel(api, made["verification_id"])
    found = ids.parse("ver", made["verification_id"])
    assert found is not None
    return found


def cancel(api: Api, verification_id: str) -> int:
    path = f"/v1/verifications/{verification_id}/cancel"
    return api.http.post(path, headers=api.headers).status_code


def dump(make: Factory) -> str:
    tables = make.all("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    return "".join(str(make.all(f"SELECT t::text FROM {row['tablename']} t")) for row in tables)


def test_after_the_retention_nothing_in_the_database_leads_to_the_person(make: Factory, api: Api) -> None:
    finished(make, api)
    assert "canary" in dump(make)
    grow_old(make)
    assert anonymise(make) == 1
    assert "canary" not in dump(make)
    assert anonymise(make) == 0, "and it is done once"


def test_what_is_younger_stays_to_the_day(make: Factory, api: Api) -> None:
    finished(make, api)
    grow_old(make, days=29)
    assert anonymise(make) == 0
    assert anonymise(make, days=28.9) == 1, "days may be decimals"


@pytest.mark.parametrize("state", [State.PENDING, State.SENDING, State.UNKNOWN])
def test_a_delivery_that_is_not_over_keeps_its_verification(make: Factory, state: State) -> None:
    delivery_id = make.in_state(state)
    make.execute(
        "UPDATE verifications SET status = 'expired' WHERE id = %s", make.row(delivery_id)["verification_id"]
    )
    grow_old(make)
    assert anonymise(make) == 0


def test_a_requested_verification_stays_however_old(make: Factory) -> None:
    make.in_state(State.ACCEPTED)
    grow_old(make)
    assert anonymise(make) == 0


def test_the_retention_begins_with_the_last_change(make: Factory, api: Api) -> None:
    """A bounce, or evidence of an unanswered hand-over, can come late; whoever asks about it then must get an answer."""
    lease = make.unknown(SMTP)
    make.execute("UPDATE verifications SET status = 'expired' WHERE id = %s", lease.verification_id)
    grow_old(make)
    provider_events.record(make.database, Event(SMTP.name, "e1", lease.delivery_id, Kind.DELIVERED))
    assert make.row(lease.delivery_id)["status"] == "accepted"
    assert anonymise(make) == 0
    grow_old(make)
    assert anonymise(make) == 1


def test_what_is_not_over_does_not_hide_what_is_behind_it(make: Factory, api: Api) -> None:
    for _ in range(3):
        delivery_id = make.in_state(State.UNKNOWN)
        make.execute(
            "UPDATE verifications SET status = 'expired' WHERE id = %s",
            make.row(delivery_id)["verification_id"],
        )
    grow_old(make, days=1)
    finished(make, api)
    grow_old(make, days=40)
    courier = make_courier(make.database, NOWHERE)
    first = retention.anonymise(make.database, retention=30 * DAYS, limit=2)
    assert (first.seen, first.anonymised) == (2, 0)
    assert anonymised_by_a_sweep(make, courier) == 1


def test_a_sweep_looks_at_so_many_and_the_next_one_goes_on_from_there(
    make: Factory, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day's tokens that ran out are old enough for a day before they are over for long enough."""
    monkeypatch.setattr(sweep, "_LOOKED_AT_ONCE", 2)
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention.anonymise, "__kwdefaults__", {"after": None, "limit": 2})
    for _ in range(3):
        make.execute(
            "UPDATE verifications SET status = 'expired' WHERE id = %s",
            make.row(make.in_state(State.UNKNOWN))["verification_id"],
        )
    grow_old(make, days=1)
    finished(make, api)
    grow_old(make, days=40)
    courier = make_courier(make.database, NOWHERE)
    assert [anonymised_by_a_sweep(make, courier) for _ in range(2)] == [0, 1]
    finished(make, api)
    grow_old(make, days=40)
    make.execute("UPDATE verifications SET created_at = '2020-01-01' WHERE status = 'cancelled'")
    assert sum(anonymised_by_a_sweep(make, courier) for _ in range(3)) == 1, "and begins again"


@pytest.mark.parametrize(
    "left",
    ["email = 'p@example.com'", "token_hash = ''", "metadata = '{}'", "return_url = 'https://shop.example'"],
)
def test_half_forgotten_is_impossible(make: Factory, api: Api, left: str) -> None:
    finished(make, api)
    assert anonymise(make, days=0) == 1
    with pytest.raises(psycopg.errors.CheckViolation):
        make.execute(f"UPDATE verifications SET {left}")


def test_a_repeated_request_is_answered_with_the_address_masked(make: Factory, api: Api) -> None:
    body = {"email": CANARY, "account_id": "a", "metadata": {"note": "x"}}
    made = api.create("the-key", **body).get_json()
    cancel(api, made["verification_id"])
    grow_old(make)
    assert anonymise(make) == 1
    again = api.create("the-key", **body)
    assert again.status_code == 202
    assert again.headers["Idempotent-Replayed"] == "true"
    told = again.get_json()
    assert (told["verification_id"], told["phase"]) == (made["verification_id"], "cancelled")
    assert (told["email_masked"], told["metadata"]) == ("***", None)
    other = api.create("the-key", **{**body, "metadata": {"note": "y"}})
    assert (other.status_code, other.get_json()["code"]) == (409, "idempotency_key_conflict")


def test_every_call_still_answers_about_it(make: Factory, api: Api) -> None:
    verification_id = ids.public("ver", finished(make, api))
    grow_old(make)
    assert anonymise(make) == 1
    for path in ("", "/receipt"):
        assert api.get(f"/v1/verifications/{verification_id}{path}").status_code == 200
    text = api.get(f"/v1/verifications/{verification_id}/receipt", Accept="text/plain").text
    assert "***" in text and "canary" not in text
    assert cancel(api, verification_id) == 200
    assert api.get("/v1/verifications").get_json()["items"][0]["email_masked"] == "***"
    assert api.get("/v1/changes").get_json()["items"]


def test_its_token_is_no_token_any_more(make: Factory, api: Api) -> None:
    made = api.create("k", email=CANARY).get_json()
    token = api.token(made["verification_id"])
    consumption.consume(make.database, token)
    grow_old(make)
    assert anonymise(make) == 1
    with pytest.raises(TokenInvalid):
        consumption.consume(make.database, token)
    account = make.one("SELECT email, activated_at FROM accounts")
    assert account["email"] == CANARY and account["activated_at"], "the account is what the client wanted"


def test_evidence_that_comes_later_still_counts_and_keeps_no_body(make: Factory) -> None:
    lease = make.handed_over(SMTP)
    make.settle(lease, Outcome.UNKNOWN, "smtp_timeout")
    operations.resolve(make.database, lease.delivery_id, Verdict.FAILED, Operator("on-call", "canary-reason"))
    make.execute("UPDATE verifications SET status = 'expired' WHERE id = %s", lease.verification_id)
    grow_old(make)
    assert anonymise(make) == 1
    assert "canary" not in dump(make)
    event = Event(SMTP.name, "e1", lease.delivery_id, Kind.BOUNCED, body={"note": "canary"})
    assert provider_events.record(make.database, event)
    assert make.row(lease.delivery_id)["status"] == "accepted"
    assert "canary" not in dump(make)
    receipt = receipts.read_receipt(make.database, lease.client_id, lease.verification_id)
    assert receipt.next_action.text


def test_suppressions_that_ran_out_are_deleted(make: Factory) -> None:
    for number, days in enumerate((29, 31)):
        make.execute(
            "INSERT INTO suppressions (id, client_id, email_canonical, reason, expires_at)"
            " VALUES (%s, %s, %s, 'bounced', now() - make_interval(days => %s))",
            ids.new_id(),
            make.client(),
            f"person-{number}@example.com",
            days,
        )
    assert retention.forget_suppressions(make.database, retention=30 * DAYS) == 1
    assert [row["email_canonical"] for row in make.all("SELECT * FROM suppressions")] == [
        "person-0@example.com"
    ]
