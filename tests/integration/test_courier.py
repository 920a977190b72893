"""From claim to settle, in this process: a real PostgreSQL, and mail servers that play a part."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from db import consumption, ids, outbox, tokens, verifications
from db.delivery_state import Outcome, State
from db.outbox import Wanted
from tasks import message
from tasks.delivery import Courier
from tasks.providers.base import Result
from tests.factories import Factory
from tests.support.courier import DATABASE_SETTINGS, create, make_courier, request
from tests.support.log_lines import logging_as
from tests.support.smtp_server import SmtpServer, accept_silently, hang, hang_up, say


def url(server: SmtpServer) -> str:
    return f"smtp://127.0.0.1:{server.port}"


def delivery_of(make: Factory, **overrides: Any) -> UUID:
    found = ids.parse("dlv", ids.public("dlv", create(make.database, make.key(), **overrides).delivery_id))
    assert found is not None
    return found


def make_due(make: Factory, delivery_id: UUID) -> None:
    make.execute(
        "UPDATE email_outbox SET next_attempt_at = now() WHERE id = %s AND status IN ('pending', 'unknown')",
        delivery_id,
    )


def test_a_mail_is_sent_once_with_the_link_that_confirms(make: Factory) -> None:
    delivery_id = delivery_of(make)
    with SmtpServer() as server:
        courier = make_courier(make.database, url(server))
        assert courier.drain() == 1
        assert courier.drain() == 0
    (mail,) = server.messages
    row = make.row(delivery_id)
    assert (row["status"], row["evidence"]) == ("accepted", "response")
    assert f"X-Countersign-Delivery: {ids.public('dlv', delivery_id)}".encode() in mail.data
    link = re.search(rb"https://countersign\.example/verify#([0-9A-Z-]{19})", mail.data)
    assert link is not None
    token = tokens.normalise(link[1].decode())
    assert token is not None
    assert not consumption.consume(make.database, token).leaked


def test_the_transcript_is_written_in_the_order_of_the_protocol(make: Factory) -> None:
    delivery_id = delivery_of(make)
    seen: dict[str, Any] = {}

    def look(connection: Any) -> None:
        seen["at_the_dot"] = make.attempts(delivery_id)
        connection.usual()

    def look_before(connection: Any) -> None:
        seen["at_data"] = make.attempts(delivery_id)
        connection.usual()

    with SmtpServer(data=look_before, end=look) as server:
        make_courier(make.database, url(server)).drain()
    assert seen["at_data"] == [], "nothing is handed over while the server can still say no"
    assert [a["outcome"] for a in seen["at_the_dot"]] == [None]
    assert seen["at_the_dot"][0]["handed_over_at"] is not None


def test_a_server_that_hangs_after_the_dot_leaves_an_unknown_and_its_replay_is_the_same_mail(
    make: Factory,
) -> None:
    delivery_id = delivery_of(make)
    with SmtpServer(end=[accept_silently(hang)]) as server:
        courier = make_courier(make.database, url(server))
        courier.drain()
        assert make.row(delivery_id)["status"] == "unknown"
        make.pass_time(delivery_id, seconds=1801)
        courier.drain()
    first, second = server.messages
    assert first.data == second.data
    row = make.row(delivery_id)
    assert (row["status"], row["attempt_count"], row["replay_count"]) == ("accepted", 1, 1)
    assert [a["outcome"] for a in make.attempts(delivery_id)] == ["unknown", "accepted"]


def test_a_refused_recipient_fails_with_a_category_and_never_meets_the_server_again(make: Factory) -> None:
    delivery_id = delivery_of(make)
    with SmtpServer(rcpt=say("550 5.1.1 no such user")) as server:
        courier = make_courier(make.database, url(server))
        courier.drain()
        courier.drain()
    row = make.row(delivery_id)
    assert (row["status"], row["failure_category"]) == ("failed", "recipient")
    assert server.commands.count("RCPT") == 1
    assert make.attempts(delivery_id)[0]["handed_over_at"] is None


def test_greylisting_is_retried_within_the_budget(make: Factory) -> None:
    delivery_id = delivery_of(make)
    with SmtpServer(rcpt=say("451 4.7.1 try again later")) as server:
        courier = make_courier(make.database, url(server))
        for _ in range(4):
            courier.drain()
            make_due(make, delivery_id)
    row = make.row(delivery_id)
    assert (row["status"], row["failure_category"], row["attempt_count"]) == ("failed", "exhausted", 3)


def test_a_server_that_is_away_costs_no_budget_and_is_probed_by_one_delivery(make: Factory) -> None:
    first, second = delivery_of(make), delivery_of(make)
    with SmtpServer(greeting=[hang_up, say("220 mail.example.com")]) as server:
        courier = make_courier(make.database, url(server))
        courier.drain()
        assert server.connections == 1, "the second delivery did not knock on a closed door"
        assert {make.row(d)["status"] for d in (first, second)} == {"pending"}
        make.execute("UPDATE provider_status SET paused_until = now()")
        courier.drain()
    assert {make.row(d)["status"] for d in (first, second)} == {"accepted"}
    assert {make.row(d)["attempt_count"] for d in (first, second)} == {1}


def test_the_second_provider_takes_over_while_the_first_is_away(make: Factory) -> None:
    delivery_id = delivery_of(make)
    with SmtpServer(greeting=hang_up) as away, SmtpServer() as well:
        courier = make_courier(make.database, f"{url(away)}?label=one,{url(well)}?label=two")
        courier.drain()
    row = make.row(delivery_id)
    assert (row["status"], row["provider"]) == ("accepted", "smtp/two")


def test_a_token_that_is_superseded_between_claim_and_hand_over_is_never_sent(make: Factory) -> None:
    account = "acc_1"
    delivery_id = delivery_of(make, account_id=account)

    def supersede(connection: Any) -> None:
        create(make.database, make.key(), account_id=account)
        connection.usual()

    with SmtpServer(rcpt=[supersede]) as server:
        courier = make_courier(make.database, url(server))
        courier.drain()
    assert make.row(delivery_id)["status"] == "expired"
    assert ids.public("dlv", delivery_id).encode() not in b"".join(mail.data for mail in server.messages)
    assert len(server.messages) == 1, "the newer one was sent"


def test_a_token_that_ran_out_is_never_sent(make: Factory) -> None:
    delivery_id = delivery_of(make)

    def run_out(connection: Any) -> None:
        make.execute("UPDATE email_outbox SET send_before = clock_timestamp() WHERE id = %s", delivery_id)
        connection.usual()

    with SmtpServer(rcpt=run_out) as server:
        make_courier(make.database, url(server)).drain()
    assert server.messages == []
    assert make.row(delivery_id)["status"] == "expired"


def test_a_worker_that_is_told_to_stop_releases_what_it_has_not_sent(make: Factory) -> None:
    delivery_id = delivery_of(make)
    with SmtpServer(rcpt=lambda connection: (stop(courier), connection.usual())) as server:  # type: ignore[arg-type]
        courier = make_courier(make.database, url(server))
        courier.drain()
    row = make.row(delivery_id)
    assert (row["status"], row["attempt_count"], row["lost_count"]) == ("pending", 0, 0)
    assert [a["outcome"] for a in make.attempts(delivery_id)] == ["not_sent"]
    assert server.messages == []


def test_what_another_release_wrote_is_not_failed(make: Factory) -> None:
    newer = verifications.create(
        make.database,
        make.key(),
        request(template_version=message.CURRENT_TEMPLATE_VERSION + 1),
        DATABASE_SETTINGS,
    ).verification
    ours = delivery_of(make)
    with SmtpServer() as server:
        make_courier(make.database, url(server)).drain()
    assert make.row(ours)["status"] == "accepted"
    row = make.row(newer.delivery_id)
    assert (row["status"], row["attempt_count"], row["last_error"]) == ("pending", 0, "cannot_render")


def test_an_adapter_that_raises_stops_neither_the_worker_nor_other_mails(make: Factory) -> None:
    poison, healthy = delivery_of(make), delivery_of(make)
    with SmtpServer() as server:
        courier = make_courier(make.database, url(server))
        render = courier.render
        courier.render = lambda lease: render(lease) if lease.delivery_id != poison else 1 / 0  # type: ignore[return-value]
        courier.drain()
    assert make.row(healthy)["status"] == "accepted"
    row = make.row(poison)
    assert (row["status"], row["attempt_count"], row["last_error"]) == ("pending", 1, "internal_error")


def test_a_pause_between_hand_over_and_write_sends_nothing(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local fence: the clock that counts through sleep says how long the hand-over took."""
    delivery_id = delivery_of(make)
    with SmtpServer() as server:
        courier = make_courier(make.database, url(server))
        monkeypatch.setattr("tasks.delivery.deadline.now", iter([0.0, 2.1, *range(3, 99)]).__next__)
        courier.deliver(make.claim_by(courier))
    assert server.messages == []
    assert make.row(delivery_id)["status"] == State.PENDING
    assert [a["outcome"] for a in make.attempts(delivery_id)] == ["not_sent"]


def test_a_replay_of_other_bytes_does_not_even_connect(make: Factory) -> None:
    delivery_id = delivery_of(make)
    with SmtpServer(end=[accept_silently(hang)]) as server:
        make_courier(make.database, url(server)).drain()
        changed = make_courier(make.database, url(server), public_url="https://new.example")
        make.pass_time(delivery_id, seconds=1801)
        assert changed.drain() == 1
        assert server.connections == 1
    row = make.row(delivery_id)
    assert (row["status"], row["last_error"], row["replay_count"]) == ("unknown", "payload_changed", 0)


def test_a_mail_that_cannot_be_rendered_ends_no_pause(make: Factory) -> None:
    delivery_of(make)
    with SmtpServer(greeting=hang_up) as server:
        courier = make_courier(make.database, url(server))
        courier.drain()
        make.execute("UPDATE provider_status SET paused_until = now()")
        courier.render = lambda lease: 1 / 0  # type: ignore[return-value]
        courier.deliver(make.claim_by(courier))
    assert make.all("SELECT 1 FROM provider_status"), "nobody asked the provider"


def test_an_adapter_that_skips_the_hand_over_is_not_believed(make: Factory) -> None:
    class Careless:
        name, replay_window, can_look_up = "smtp/127.0.0.1", 0.0, False

        def send(self, *_: object) -> Result:
            return Result(Outcome.ACCEPTED, "accepted")

        def close(self) -> None: ...

    delivery_id = delivery_of(make)
    courier = make_courier(make.database, "smtp://127.0.0.1:1")
    courier.routes = {
        **courier.routes,
        "live": replace(courier.routes["live"], providers={Careless.name: Careless()}),
    }
    courier.drain()
    row = make.row(delivery_id)
    assert (row["status"], row["last_error"]) == ("pending", "internal_error")


def test_a_drain_kicks_when_its_slice_ends_with_work_left(make: Factory) -> None:
    kicks: list[None] = []
    for _ in range(3):
        delivery_of(make)
    with SmtpServer() as server:
        courier = make_courier(make.database, url(server), kick=lambda: kicks.append(None))
        assert courier.drain(seconds=0.0) == 1
    assert kicks


def stop(courier: Courier) -> None:
    courier.shutdown.requested = True


def test_a_delivery_that_needs_too_many_leases_is_told_of_once(
    make: Factory, capsys: pytest.CaptureFixture[str]
) -> None:
    delivery_id = delivery_of(make)
    with SmtpServer(rcpt=say("451 4.7.1 not yet")) as server, logging_as("json"):
        courier = make_courier(make.database, url(server), max_attempts=9, oscillation_limit=3)
        for _ in range(6):
            courier.drain()
            make_due(make, delivery_id)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (told,) = [line for line in lines if line["event"] == "delivery_oscillates"]
    assert told["alert"] is True
    assert (told["lease_token"], told["limit"]) == (4, 3)
    assert told["delivery_id"] == ids.public("dlv", delivery_id)
    assert outbox.stats(make.database, 3).oscillating == 1
    (listed,) = outbox.newest(make.database, Wanted(more_leases_than=3), 10)
    assert listed.id == delivery_id
