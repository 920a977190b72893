"""The lease protocol on a real PostgreSQL: claim, hand over, settle, reclaim, evidence, gates."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from db import deliveries, leases, overdue
from db.delivery_rules import ProviderTraits
from db.delivery_state import CLOSING_OUTCOMES, Evidence, GateReason, Outcome, State
from db.leases import Position
from db.provider_pauses import Refusal
from tests.factories import DIGEST, KEYED, SEARCHABLE, SENDER, SMTP, Factory, policy, terms

AWAY = Refusal("away", "connection_refused", retry_after=None, backoff=(5.0, 15.0, 60.0))


def test_a_due_delivery_is_leased_once(make: Factory) -> None:
    made = make.waiting()
    (lease,) = leases.claim(make.database, terms())
    assert (lease.delivery_id, lease.token, lease.action) == (made.delivery_id, 1, "send")
    assert lease.recipient == "person@example.com"
    assert leases.claim(make.database, terms(owner="host:2:0")) == []
    row = make.row(made.delivery_id)
    assert (row["status"], row["lease_owner"], row["attempt_count"]) == ("sending", "host:1:0", 0)


def test_claims_come_in_the_order_in_which_rows_fell_due(make: Factory) -> None:
    made = [make.waiting().delivery_id for _ in range(3)]
    assert [lease.delivery_id for lease in leases.claim(make.database, terms(), limit=2)] == made[:2]
    assert [lease.delivery_id for lease in leases.claim(make.database, terms(), limit=2)] == made[2:]


def test_a_claim_starts_at_its_position(make: Factory) -> None:
    first, second = make.waiting().delivery_id, make.waiting().delivery_id
    at = make.row(second)["next_attempt_at"]
    assert [
        lease.delivery_id
        for lease in leases.claim(make.database, terms(), Position((at, second), (at, second)), limit=5)
    ] == [second]
    assert [lease.delivery_id for lease in leases.claim(make.database, terms(), limit=5)] == [first]


def test_a_delivery_whose_gate_closed_is_never_leased(make: Factory) -> None:
    made = make.waiting(send_before=0.0)
    assert leases.claim(make.database, terms()) == []
    assert overdue.end_overdue_pending(make.database, {"live": [SMTP.name]}, SENDER) == 1
    row = make.row(made.delivery_id)
    assert (row["status"], row["failure_code"]) == ("expired", None)


def test_a_suppressed_address_ends_the_delivery_before_a_lease(make: Factory) -> None:
    made = make.waiting()
    make.execute(
        "INSERT INTO suppressions (id, client_id, email_canonical, reason) VALUES (%s, %s, %s, 'bounce')",
        made.delivery_id,
        made.client_id,
        "person@example.com",
    )
    assert leases.claim(make.database, terms()) == []
    row = make.row(made.delivery_id)
    assert (row["status"], row["failure_category"], row["failure_code"]) == (
        "failed",
        "recipient",
        "suppressed",
    )
    assert row["lease_token"] == 0


def test_a_hand_over_stamps_the_attempt_and_renews_the_lease_once(make: Factory) -> None:
    lease = make.leased()
    make.pass_time(lease.delivery_id, seconds=60)
    assert make.hand_over(lease)
    row = make.row(lease.delivery_id)
    assert (row["open_provider"], row["payload_digest"], row["replay_count"]) == (SMTP.name, DIGEST, 0)
    (attempt,) = make.attempts(lease.delivery_id)
    assert attempt["outcome"] is None
    assert row["lease_until"] - attempt["handed_over_at"] > timedelta(seconds=80)


def test_no_hand_over_after_the_lease_ended(make: Factory) -> None:
    lease = make.leased()
    make.pass_time(lease.delivery_id, seconds=91)
    assert not make.hand_over(lease)
    assert make.attempts(lease.delivery_id) == []


@pytest.mark.parametrize("reason", GateReason)
def test_no_hand_over_after_the_gate_closed(make: Factory, reason: GateReason) -> None:
    lease = make.leased()
    assert make.close_gate(lease.delivery_id, reason) is State.SENDING
    assert not make.hand_over(lease)
    ended = make.settle(lease, Outcome.NOT_SENT, "hand_over_refused").state
    assert ended is (State.CANCELLED if reason is GateReason.CANCELLED else State.EXPIRED)


def test_no_hand_over_by_another_owner_or_an_older_token(make: Factory) -> None:
    old = make.leased()
    make.pass_time(old.delivery_id, seconds=91)
    assert make.reclaim() == 1
    make.pass_time(old.delivery_id, seconds=10)
    new = make.claim(old.delivery_id, owner="host:2:0")
    assert not make.hand_over(old)
    assert make.hand_over(new)


def test_acceptance_completes_the_delivery_with_its_evidence(make: Factory) -> None:
    lease = make.handed_over()
    assert make.settle(lease, Outcome.ACCEPTED).state is State.ACCEPTED
    row = make.row(lease.delivery_id)
    assert (row["evidence"], row["attempt_count"], row["lease_owner"]) == ("response", 1, None)
    assert row["completed_at"] is not None


def test_a_transient_refusal_waits_for_the_backoff(make: Factory) -> None:
    lease = make.handed_over()
    assert make.settle(lease, Outcome.TRANSIENT, "greylisted").state is State.PENDING
    row = make.row(lease.delivery_id)
    (attempt,) = make.attempts(lease.delivery_id)
    wait = row["next_attempt_at"] - attempt["finished_at"]
    assert abs(wait - timedelta(seconds=60)) < timedelta(seconds=1)
    assert (row["open_provider"], row["payload_digest"], row["last_error"]) == (None, None, "greylisted")


def test_the_budget_ends_in_a_failure_with_category_and_code(make: Factory) -> None:
    delivery_id = make.waiting().delivery_id
    for _ in range(6):
        lease = make.claim(delivery_id)
        make.settle(lease, Outcome.TRANSIENT, "greylisted")
        make.execute(
            "UPDATE email_outbox SET next_attempt_at = now() WHERE id = %s AND status = 'pending'",
            delivery_id,
        )
    row = make.row(delivery_id)
    assert (row["status"], row["failure_category"], row["failure_code"]) == (
        "failed",
        "exhausted",
        "greylisted",
    )
    assert row["attempt_count"] == 6


def test_a_retry_after_the_deadline_is_a_failure_now(make: Factory) -> None:
    lease = make.leased(send_before=30.0)
    assert make.settle(lease, Outcome.TRANSIENT, "greylisted").state is State.FAILED


def test_an_unanswered_hand_over_is_unknown_until_the_evidence_window_ends(make: Factory) -> None:
    lease = make.unknown()
    row = make.row(lease.delivery_id)
    (attempt,) = make.attempts(lease.delivery_id)
    assert row["next_attempt_at"] - attempt["handed_over_at"] == timedelta(seconds=1800)
    assert leases.claim(make.database, terms()) == []


def test_a_keyless_provider_gets_one_replay_after_the_window_and_then_the_delivery_fails(
    make: Factory,
) -> None:
    delivery_id = make.unknown().delivery_id
    make.pass_time(delivery_id, seconds=1801)
    replay = make.claim(delivery_id)
    assert (replay.action, replay.payload_digest) == ("replay", DIGEST)
    assert not make.hand_over(replay, digest=b"\x02" * 32), "other bytes are no replay"
    assert make.hand_over(replay)
    assert make.settle(replay, Outcome.UNKNOWN, "smtp_timeout").state is State.UNKNOWN
    make.pass_time(delivery_id, seconds=1801)
    assert leases.claim(make.database, terms()) == []
    _sweep_unknown(make)
    row = make.row(delivery_id)
    assert (row["status"], row["failure_category"], row["failure_code"]) == (
        "failed",
        "unresolved",
        "outcome_unresolved",
    )
    assert (row["attempt_count"], row["replay_count"]) == (1, 1)


def test_a_keyed_provider_is_replayed_within_its_budget(make: Factory) -> None:
    delivery_id = make.handed_over(KEYED).delivery_id
    keyed = policy(KEYED)
    make.pass_time(delivery_id, seconds=91)
    assert make.reclaim(policy=keyed) == 1
    for _ in range(3):
        make.pass_time(delivery_id, seconds=700)
        replay = make.claim(delivery_id, KEYED)
        assert make.hand_over(replay)
        assert make.settle(replay, Outcome.UNKNOWN, policy=keyed).state is State.UNKNOWN
    make.pass_time(delivery_id, seconds=1801)
    assert leases.claim(make.database, terms(KEYED)) == []
    assert make.row(delivery_id)["replay_count"] == 3


def test_look_ups_spend_no_budget(make: Factory) -> None:
    lease = make.handed_over(SEARCHABLE)
    searching = policy(SEARCHABLE)
    make.settle(lease, Outcome.UNKNOWN, policy=searching)
    make.pass_time(lease.delivery_id, seconds=31)
    look_up = make.claim(lease.delivery_id, SEARCHABLE)
    assert look_up.action == "look_up"
    make.settle(look_up, Outcome.NOT_SENT, "lookup_not_found", policy=searching)
    row = make.row(lease.delivery_id)
    assert (row["status"], row["attempt_count"], row["replay_count"]) == ("unknown", 1, 0)


def test_an_open_hand_over_is_sticky_through_a_refused_replay(make: Factory) -> None:
    delivery_id = make.unknown().delivery_id
    make.pass_time(delivery_id, seconds=1801)
    replay = make.claim(delivery_id)
    assert make.hand_over(replay)
    assert make.settle(replay, Outcome.PERMANENT, "mailbox_unavailable").state is State.UNKNOWN
    assert make.row(delivery_id)["open_provider"] == SMTP.name


def test_a_closed_gate_forbids_the_replay_of_an_unknown(make: Factory) -> None:
    delivery_id = make.unknown().delivery_id
    assert make.close_gate(delivery_id, GateReason.SUPERSEDED) is State.UNKNOWN
    make.pass_time(delivery_id, seconds=1801)
    assert leases.claim(make.database, terms()) == []
    _sweep_unknown(make)
    assert make.row(delivery_id)["failure_code"] == "outcome_unresolved"


def test_a_lease_that_ran_out_before_the_hand_over_costs_nothing(make: Factory) -> None:
    lease = make.leased()
    make.pass_time(lease.delivery_id, seconds=91)
    assert make.reclaim() == 1
    row = make.row(lease.delivery_id)
    assert (row["status"], row["attempt_count"], row["lost_count"]) == ("pending", 0, 1)
    (attempt,) = make.attempts(lease.delivery_id)
    assert (attempt["outcome"], attempt["handed_over_at"]) == ("lost", None)


def test_a_lease_that_ran_out_after_the_hand_over_is_unknown(make: Factory) -> None:
    lease = make.handed_over()
    make.pass_time(lease.delivery_id, seconds=91)
    assert make.reclaim() == 1
    assert make.row(lease.delivery_id)["status"] == "unknown"


def test_a_delivery_that_loses_every_lease_fails(make: Factory) -> None:
    delivery_id = make.waiting().delivery_id
    for _ in range(6):
        make.claim(delivery_id)
        make.pass_time(delivery_id, seconds=91)
        make.reclaim()
        make.execute(
            "UPDATE email_outbox SET next_attempt_at = now() WHERE id = %s AND status = 'pending'",
            delivery_id,
        )
    row = make.row(delivery_id)
    assert (row["status"], row["failure_category"], row["failure_code"]) == (
        "failed",
        "internal",
        "lease_lost",
    )


def test_a_late_result_changes_no_row_and_is_counted(make: Factory) -> None:
    old = make.handed_over()
    make.pass_time(old.delivery_id, seconds=91)
    make.reclaim()
    before = make.row(old.delivery_id)
    late = make.settle(old, Outcome.TRANSIENT, "greylisted")
    assert (late.state, late.stale) == (State.UNKNOWN, True)
    assert make.row(old.delivery_id) == before
    (attempt,) = make.attempts(old.delivery_id)
    assert (attempt["outcome"], attempt["stale"]) == ("transient", True)
    assert overdue.return_answered_late(make.database, policy()) == 1
    row = make.row(old.delivery_id)
    assert (row["status"], row["open_provider"]) == ("pending", None)


def test_late_acceptance_is_evidence(make: Factory) -> None:
    old = make.handed_over()
    make.pass_time(old.delivery_id, seconds=91)
    make.reclaim()
    late = make.settle(old, Outcome.ACCEPTED)
    assert (late.state, late.stale) == (State.ACCEPTED, True)
    assert make.row(old.delivery_id)["evidence"] == "response"


def test_a_settle_repeated_after_an_unknown_commit_changes_nothing(make: Factory) -> None:
    lease = make.handed_over()
    make.settle(lease, Outcome.TRANSIENT, "greylisted")
    before = make.row(lease.delivery_id), make.attempts(lease.delivery_id)
    again = make.settle(lease, Outcome.TRANSIENT, "greylisted")
    assert (again.state, again.stale) == (State.PENDING, False)
    assert (make.row(lease.delivery_id), make.attempts(lease.delivery_id)) == before


def test_a_release_after_the_leases_end_is_allowed_to_its_holder(make: Factory) -> None:
    lease = make.handed_over()
    make.pass_time(lease.delivery_id, seconds=91)
    assert make.settle(lease, Outcome.NOT_SENT, "hand_over_too_old").state is State.PENDING
    assert make.row(lease.delivery_id)["open_provider"] is None


@pytest.mark.parametrize("state", [s for s in State if s is not State.ACCEPTED])
def test_evidence_accepts_what_was_handed_over(make: Factory, state: State) -> None:
    delivery_id = make.in_state(state)
    if state in {State.PENDING, State.EXPIRED, State.CANCELLED}:
        make.execute(
            """
            INSERT INTO delivery_attempts (delivery_id, lease_token, worker, provider, started_at, handed_over_at,
                finished_at, outcome, correlation_id)
            VALUES (%s, 0, 'w', %s, now(), now(), now(), 'not_sent', 'r')
            """,
            delivery_id,
            SMTP.name,
        )
    assert _evidence(make, delivery_id, SMTP.name)
    row = make.row(delivery_id)
    assert (row["status"], row["evidence"], row["lease_owner"]) == ("accepted", "webhook", None)
    assert not _evidence(make, delivery_id, SMTP.name), "once"


def test_evidence_of_a_provider_that_got_nothing_is_none(make: Factory) -> None:
    assert not _evidence(make, make.in_state(State.PENDING), SMTP.name)
    assert not _evidence(make, make.in_state(State.UNKNOWN), KEYED.name)


def test_a_refusal_pauses_the_provider_for_all_and_spends_no_budget(make: Factory) -> None:
    lease = make.leased()
    other = make.waiting().delivery_id
    assert make.settle(lease, Outcome.REFUSED_US, "connection_refused", refusal=AWAY).state is State.PENDING
    assert make.row(lease.delivery_id)["attempt_count"] == 0
    assert leases.claim(make.database, terms()) == []
    assert not leases.has_due_work(make.database, terms())
    assert make.row(other)["status"] == "pending"
    (through_another,) = leases.claim(make.database, terms(SMTP, KEYED))
    assert through_another.provider == KEYED.name


def test_after_a_pause_one_delivery_probes_and_its_success_ends_it(make: Factory) -> None:
    for _ in range(3):
        make.waiting()
    first = leases.claim(make.database, terms())[0]
    make.settle(first, Outcome.REFUSED_US, "connection_refused", refusal=AWAY)
    make.execute("UPDATE provider_status SET paused_until = now()")
    (probe,) = leases.claim(make.database, terms(), limit=3)
    assert probe.is_probe
    assert probe.delivery_id != first.delivery_id, "another mail probes: the first may be the reason"
    assert leases.claim(make.database, terms()) == []
    assert make.hand_over(probe)
    make.settle(probe, Outcome.ACCEPTED)
    assert make.all("SELECT * FROM provider_status") == []
    assert len(leases.claim(make.database, terms(), limit=3)) == 2


def test_refusals_of_sends_that_began_together_count_once(make: Factory) -> None:
    first, second = make.leased(), make.leased()
    for lease in (first, second):
        make.settle(lease, Outcome.REFUSED_US, "connection_refused", refusal=AWAY)
    assert make.one("SELECT refusals FROM provider_status")["refusals"] == 1


def test_a_probe_that_is_refused_lengthens_the_pause(make: Factory) -> None:
    make.settle(make.leased(), Outcome.REFUSED_US, "connection_refused", refusal=AWAY)
    make.execute("UPDATE provider_status SET paused_until = now()")
    probe = leases.claim(make.database, terms())[0]
    make.settle(probe, Outcome.REFUSED_US, "connection_refused", refusal=AWAY)
    status = make.one("SELECT refusals, paused_until - refused_at AS pause FROM provider_status")
    assert status["refusals"] == 2
    assert timedelta(seconds=14) < status["pause"] < timedelta(seconds=16)


def test_what_waits_for_a_paused_provider_until_its_gate_closes_says_so(make: Factory) -> None:
    make.settle(make.leased(), Outcome.REFUSED_US, "connection_refused", refusal=AWAY)
    waiting = make.waiting(send_before=0.0)
    assert overdue.end_overdue_pending(make.database, {"live": [SMTP.name]}, SENDER) == 1
    row = make.row(waiting.delivery_id)
    assert (row["status"], row["failure_category"], row["failure_code"]) == (
        "expired",
        "config",
        "provider_unavailable",
    )


def test_a_paused_provider_gets_no_replay_and_the_unknown_waits(make: Factory) -> None:
    delivery_id = make.unknown().delivery_id
    make.settle(make.leased(), Outcome.REFUSED_US, "connection_refused", refusal=AWAY)
    make.pass_time(delivery_id, seconds=1801)
    assert leases.claim(make.database, terms()) == []
    _sweep_unknown(make)
    row = make.row(delivery_id)
    assert row["status"] == "unknown"
    assert row["next_attempt_at"] > make.one("SELECT now() AS now")["now"]


def test_every_transition_but_claim_is_on_record(make: Factory) -> None:
    lease = make.handed_over()
    make.settle(lease, Outcome.UNKNOWN)
    with make.database.transaction() as tx:
        facts = deliveries.lock(tx, lease.delivery_id)
        assert deliveries.consume(tx, facts)
    changes = make.all(
        "SELECT before, after, evidence FROM state_changes WHERE delivery_id = %s ORDER BY id",
        lease.delivery_id,
    )
    assert [(c["before"], c["after"], c["evidence"]) for c in changes] == [
        (None, "pending", None),
        ("sending", "unknown", None),
        ("unknown", "accepted", "consumed"),
    ]


def test_a_token_used_before_any_hand_over_closes_the_gate(make: Factory) -> None:
    made = make.waiting()
    with make.database.transaction() as tx:
        assert not deliveries.consume(tx, deliveries.lock(tx, made.delivery_id))
    row = make.row(made.delivery_id)
    assert (row["status"], row["gate_reason"]) == ("expired", "consumed")


def test_closing_outcomes_are_what_the_claim_is_told(make: Factory) -> None:
    """An accepted or lost attempt leaves its hand-over open; the four others close it."""
    assert frozenset(Outcome) - CLOSING_OUTCOMES == {Outcome.ACCEPTED, Outcome.UNKNOWN, Outcome.LOST}


def _sweep_unknown(make: Factory) -> None:
    unknown_terms = overdue.UnknownTerms("live", (SMTP, KEYED), SENDER, 3)
    overdue.end_overdue_unknown(make.database, policy(SMTP, KEYED), unknown_terms)


def _evidence(make: Factory, delivery_id: object, provider: str) -> bool:
    with make.database.transaction() as tx:
        facts = deliveries.lock(tx, delivery_id)  # type: ignore[arg-type]
        return deliveries.record_evidence(tx, facts, Evidence.WEBHOOK, provider=provider)


def test_a_look_up_that_finds_the_mail_is_evidence_and_no_attempt(make: Factory) -> None:
    look_up = _due_look_up(make)
    settled = make.settle(look_up, Outcome.ACCEPTED, policy=policy(SEARCHABLE))
    row = make.row(look_up.delivery_id)
    assert (settled.state, row["evidence"], row["attempt_count"]) == (State.ACCEPTED, "lookup", 1)
    last = make.attempts(look_up.delivery_id)[-1]
    assert (last["outcome"], last["error_code"]) == ("not_sent", "lookup_found")


@pytest.mark.parametrize("provider", [SEARCHABLE, KEYED], ids=["look-up", "keyed replay"])
def test_a_sweep_leaves_to_the_claim_what_a_claim_can_resolve(
    make: Factory, provider: ProviderTraits
) -> None:
    lease = make.handed_over(provider)
    make.settle(lease, Outcome.UNKNOWN, policy=policy(provider))
    make.pass_time(lease.delivery_id, seconds=31)
    overdue.end_overdue_unknown(
        make.database, policy(provider), overdue.UnknownTerms("live", (provider,), SENDER, 3)
    )
    assert leases.claim(make.database, terms(provider))


def test_a_short_pause_does_not_cost_the_look_ups(make: Factory) -> None:
    lease = make.handed_over(SEARCHABLE)
    make.settle(lease, Outcome.UNKNOWN, policy=policy(SEARCHABLE))
    make.settle(make.leased(SEARCHABLE), Outcome.REFUSED_US, "connection_refused", refusal=AWAY)
    make.pass_time(lease.delivery_id, seconds=31)
    assert leases.claim(make.database, terms(SEARCHABLE)) == []
    wait = make.one(
        "SELECT next_attempt_at - now() AS wait FROM email_outbox WHERE id = %s", lease.delivery_id
    )
    assert wait["wait"] < timedelta(seconds=6)


def test_a_probe_that_looks_up_ends_the_pause(make: Factory) -> None:
    lease = make.handed_over(SEARCHABLE)
    make.settle(lease, Outcome.UNKNOWN, policy=policy(SEARCHABLE))
    make.settle(make.leased(SEARCHABLE), Outcome.REFUSED_US, "connection_refused", refusal=AWAY)
    make.pass_time(lease.delivery_id, seconds=31)
    make.execute("UPDATE provider_status SET paused_until = now()")
    (probe,) = leases.claim(make.database, terms(SEARCHABLE))
    assert (probe.is_probe, probe.action) == (True, "look_up")
    make.settle(probe, Outcome.NOT_SENT, "lookup_not_found", policy=policy(SEARCHABLE))
    assert make.all("SELECT 1 FROM provider_status") == []


def test_a_late_refusal_pauses_nobody(make: Factory) -> None:
    old = make.leased()
    make.pass_time(old.delivery_id, seconds=91)
    make.reclaim()
    assert make.settle(old, Outcome.REFUSED_US, "connection_refused", refusal=AWAY).stale
    assert make.all("SELECT 1 FROM provider_status") == []


def test_a_late_probe_ends_no_newer_pause(make: Factory) -> None:
    make.settle(make.leased(), Outcome.REFUSED_US, "connection_refused", refusal=AWAY)
    make.waiting()
    make.execute("UPDATE provider_status SET paused_until = now()")
    (first,) = leases.claim(make.database, terms())
    assert make.hand_over(first)
    make.pass_time(first.delivery_id, seconds=91)
    make.reclaim()
    make.execute("UPDATE provider_status SET paused_until = now()")
    (second,) = leases.claim(make.database, terms())
    make.settle(second, Outcome.REFUSED_US, "connection_refused", refusal=AWAY)
    make.settle(first, Outcome.ACCEPTED)
    assert make.all("SELECT 1 FROM provider_status"), "the newer refusal stands"


@pytest.mark.parametrize("retry_after", [0.0, 1e18])
def test_a_providers_wish_is_heard_within_bounds(make: Factory, retry_after: float) -> None:
    refusal = replace(AWAY, retry_after=retry_after)
    make.settle(make.leased(), Outcome.REFUSED_US, "rate_limited", refusal=refusal)
    status = make.one("SELECT paused_until - refused_at AS pause FROM provider_status")
    assert timedelta(seconds=4) < status["pause"] <= timedelta(days=1, seconds=1)


def test_a_late_refusal_for_good_is_not_answered_by_a_mail_at_once(make: Factory) -> None:
    lease = make.handed_over()
    make.pass_time(lease.delivery_id, seconds=91)
    make.reclaim()
    make.settle(lease, Outcome.PERMANENT, "mailbox_unavailable")
    assert overdue.return_answered_late(make.database, policy()) == 1
    assert leases.claim(make.database, terms()) == []


def test_suppressed_deliveries_at_the_head_do_not_hide_what_is_due_behind_them(make: Factory) -> None:
    for _ in range(5):
        bounced = make.waiting(email="bounced@example.com")
    healthy = make.waiting()
    make.execute(
        "INSERT INTO suppressions (id, client_id, email_canonical, reason) VALUES (%s, %s, %s, 'bounce')",
        bounced.delivery_id,
        bounced.client_id,
        "bounced@example.com",
    )
    assert [lease.delivery_id for lease in leases.claim(make.database, terms())] == [healthy.delivery_id]


def test_a_replay_spends_no_attempt_whatever_became_known_while_it_ran(make: Factory) -> None:
    first = make.handed_over(KEYED)
    keyed = policy(KEYED)
    make.pass_time(first.delivery_id, seconds=91)
    make.reclaim(policy=keyed)
    make.pass_time(first.delivery_id, seconds=700)
    replay = make.claim(first.delivery_id, KEYED)
    assert make.hand_over(replay)
    make.settle(first, Outcome.TRANSIENT, "greylisted", policy=keyed)
    make.settle(replay, Outcome.TRANSIENT, "greylisted", policy=keyed)
    row = make.row(first.delivery_id)
    assert (row["attempt_count"], row["replay_count"]) == (0, 1)


def _due_look_up(make: Factory) -> leases.Lease:
    lease = make.handed_over(SEARCHABLE)
    make.settle(lease, Outcome.UNKNOWN, policy=policy(SEARCHABLE))
    make.pass_time(lease.delivery_id, seconds=31)
    return make.claim(lease.delivery_id, SEARCHABLE)
