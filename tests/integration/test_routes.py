"""Live and test mail share workers and nothing else: neither can reach the other's providers, neither waits for the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest

from db import deliveries, leases
from db.delivery_rules import ProviderTraits
from db.delivery_state import State
from db.leases import ClaimTerms
from tasks import sweep
from tests.factories import SMTP, Factory, terms
from tests.support.courier import create, make_courier
from tests.support.rehearsal import NOWHERE, Rehearsal
from tests.support.smtp_server import SmtpServer

SIMULATOR = ProviderTraits("simulator", can_look_up=True, replay_window=0.0)


def simulated(**changes: Any) -> ClaimTerms:
    return replace(terms(SIMULATOR), route="test", **changes)


@pytest.fixture
def rehearsal(make: Factory) -> Rehearsal:
    return Rehearsal(make)


def unknown_on_test(rehearsal: Rehearsal) -> Any:
    return rehearsal.send("unresolved@example.com")


def make_due(make: Factory, *, window_over: bool) -> None:
    """Unknown ones; `window_over`: nothing but a replay is left."""
    make.execute("UPDATE email_outbox SET next_attempt_at = now() - interval '1 s' WHERE status = 'unknown'")
    if window_over:
        make.execute("UPDATE delivery_attempts SET handed_over_at = handed_over_at - interval '1801 s'")


def test_a_claim_finds_its_own_routes_deliveries_and_no_others(make: Factory, rehearsal: Rehearsal) -> None:
    expected = {"live": {make.unknown().delivery_id}, "test": {unknown_on_test(rehearsal)}}
    make_due(make, window_over=True)
    expected["live"].add(make.waiting().delivery_id)
    expected["test"].add(rehearsal.create("accepted@example.com"))
    found: dict[str, set[Any]] = {"live": set(), "test": set()}
    for claimed_by in (terms(SMTP), simulated()):
        while claimed := leases.claim(make.database, claimed_by):
            assert {lease.route for lease in claimed} == {claimed_by.route}
            found[claimed_by.route] |= {lease.delivery_id for lease in claimed}
    assert found == expected


@pytest.mark.parametrize("window_over", [False, True], ids=["look-up", "replay"])
def test_an_unanswered_mail_is_neither_looked_up_nor_replayed_elsewhere(
    make: Factory, rehearsal: Rehearsal, window_over: bool
) -> None:
    """Its provider is not on the other route, even for terms that name it."""
    live, test = make.unknown().delivery_id, unknown_on_test(rehearsal)
    make_due(make, window_over=window_over)
    assert leases.claim(make.database, terms(SIMULATOR)) == []
    assert leases.claim(make.database, replace(terms(SMTP), route="test")) == []
    assert {make.row(each)["status"] for each in (live, test)} == {"unknown"}


def test_terms_that_mix_up_the_providers_hand_nothing_over(make: Factory, rehearsal: Rehearsal) -> None:
    make.waiting()
    rehearsal.create("accepted@example.com")
    for mixed_up in (terms(SIMULATOR), replace(terms(SMTP), route="test")):
        (lease,) = leases.claim(make.database, mixed_up)
        with pytest.raises(psycopg.errors.CheckViolation, match="provider_on_route"):
            make.hand_over(lease)


@pytest.mark.parametrize(("route", "provider"), [("live", "simulator"), ("test", "smtp/one.example.com")])
@pytest.mark.parametrize("column", ["provider", "open_provider"])
def test_the_table_itself_keeps_them_apart(
    make: Factory, rehearsal: Rehearsal, route: str, provider: str, column: str
) -> None:
    delivery_id = make.unknown().delivery_id if route == "live" else unknown_on_test(rehearsal)
    with pytest.raises(psycopg.errors.CheckViolation, match="provider_on_route"):
        make.execute(f"UPDATE email_outbox SET {column} = '{provider}' WHERE id = %s", delivery_id)
    with pytest.raises(psycopg.errors.CheckViolation):
        make.execute(
            "UPDATE email_outbox SET route = %s WHERE id = %s",
            "test" if route == "live" else "live",
            delivery_id,
        )


def test_a_release_that_knows_no_routes_cannot_send_test_mail(make: Factory, rehearsal: Rehearsal) -> None:
    """During a rolling deploy its claim takes whatever is due; its hand-over is refused before any byte leaves."""
    delivery_id = rehearsal.create("accepted@example.com")
    with SmtpServer() as server:
        courier = make_courier(make.database, f"smtp://127.0.0.1:{server.port}")
        live = courier.routes["live"]
        (lease,) = leases.claim(make.database, replace(live.terms("host:1:0"), route="test"))
        courier.deliver(replace(lease, route="live"))
        assert server.messages == []
    row = make.row(delivery_id)
    assert (row["status"], row["provider"], row["open_provider"]) == ("pending", None, None)
    make.pass_time(delivery_id, seconds=61)
    rehearsal.courier.drain()
    assert make.row(delivery_id)["provider"] == "simulator"


def test_a_lease_whose_provider_is_not_of_its_route_sends_nothing(
    make: Factory, rehearsal: Rehearsal
) -> None:
    delivery_id = rehearsal.create("accepted@example.com")
    lease = make.claim_by(rehearsal.courier, "test")
    rehearsal.courier.deliver(replace(lease, provider="smtp/127.0.0.1"))
    assert make.attempts(delivery_id)[0]["handed_over_at"] is None
    assert make.row(delivery_id)["status"] == "pending"


def test_a_live_provider_that_is_away_does_not_hold_up_test_mail(make: Factory, rehearsal: Rehearsal) -> None:
    live = create(make.database, make.key()).delivery_id
    assert rehearsal.courier.drain() == 1, "the only live provider cannot be reached"
    assert make.row(live)["status"] == "pending"
    assert make.row(rehearsal.send("accepted@example.com"))["status"] == "accepted"


def test_a_paused_simulator_does_not_hold_up_live_mail(make: Factory) -> None:
    with SmtpServer() as server:
        rehearsal = Rehearsal(make, make_courier(make.database, f"smtp://127.0.0.1:{server.port}"))
        sender = rehearsal.courier.routes["live"].terms("").sender
        make.execute(
            """
            INSERT INTO provider_status (provider, sender, paused_until, kind, code)
            VALUES ('simulator', %s, now() + interval '1 hour', 'operator', 'paused')
            """,
            sender,
        )
        waiting, live = (
            rehearsal.create("accepted@example.com"),
            create(make.database, make.key()).delivery_id,
        )
        assert rehearsal.courier.drain() == 1
    assert [make.row(each)["status"] for each in (waiting, live)] == ["pending", "accepted"]


def test_one_drain_serves_both_and_live_mail_first(make: Factory) -> None:
    with SmtpServer() as server:
        rehearsal = Rehearsal(make, make_courier(make.database, f"smtp://127.0.0.1:{server.port}"))
        rehearsal.courier.drain()  # the turn of test mail is over for a moment
        test = [rehearsal.create(f"accepted+{n}@example.com") for n in range(5)]
        live = create(make.database, make.key()).delivery_id
        assert rehearsal.courier.drain() == 6
    assert {make.row(each)["status"] for each in [*test, live]} == {"accepted"}
    times = make.all("SELECT delivery_id, started_at FROM delivery_attempts ORDER BY started_at")
    assert times[0]["delivery_id"] == live


def test_an_idle_drain_claims_twice(make: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    claim = leases.claim
    monkeypatch.setattr(leases, "claim", lambda *a: (asked.append(a[1].route), claim(*a))[1])
    make_courier(make.database, NOWHERE).drain()
    assert sorted(asked) == ["live", "test"]


def test_due_work_is_found_on_either_route(make: Factory, rehearsal: Rehearsal) -> None:
    assert not rehearsal.courier.finds_due_work()
    rehearsal.create("accepted@example.com")
    assert rehearsal.courier.has_due_work()
    assert rehearsal.courier.finds_due_work()


def test_time_ends_test_deliveries_as_well_and_by_their_own_provider(
    make: Factory, rehearsal: Rehearsal
) -> None:
    """A pause of all live providers is no reason that a test delivery could not leave."""
    live, test = make.waiting().delivery_id, rehearsal.create("accepted@example.com")
    make.execute("UPDATE email_outbox SET send_before = now()")
    route = rehearsal.courier.routes["live"]
    (provider,) = route.providers
    make.execute(
        """
        INSERT INTO provider_status (provider, sender, paused_until, kind, code)
        VALUES (%s, %s, now() + interval '1 hour', 'away', 'connection_refused')
        """,
        provider,
        route.terms("").sender,
    )
    sweep.run_once(rehearsal.courier, trigger="beat")
    rows = [make.row(each) for each in (live, test)]
    assert [(row["status"], row["failure_code"]) for row in rows] == [
        ("expired", "provider_unavailable"),
        ("expired", None),
    ]


def test_a_reclaimed_test_delivery_keeps_its_look_ups(make: Factory, rehearsal: Rehearsal) -> None:
    delivery_id = rehearsal.create("unknown@example.com")
    lease = make.claim_by(rehearsal.courier, "test")
    assert make.hand_over(lease)
    rehearsal.later(delivery_id, 91)
    assert make.row(delivery_id)["status"] == State.UNKNOWN
    rehearsal.later(delivery_id, 31)
    row = make.row(delivery_id)
    assert (row["status"], row["evidence"]) == ("accepted", "lookup")


def test_evidence_of_the_other_routes_provider_moves_nothing(make: Factory, rehearsal: Rehearsal) -> None:
    delivery_id = unknown_on_test(rehearsal)
    with make.database.transaction() as tx:
        facts = deliveries.lock(tx, delivery_id)
        assert not deliveries.record_evidence(tx, facts, "webhook", provider=SMTP.name)  # type: ignore[arg-type]
    assert make.row(delivery_id)["status"] == "unknown"
