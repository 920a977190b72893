"""What happens by itself to an unknown outcome, to its end (docs/unknown-outcomes.md): the whole engine, a provider that is
told what to say, and time that is moved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from db import consumption, endings, ids, leases, provider_events
from db.delivery_rules import AttemptResult
from db.delivery_state import FailureCategory, Outcome
from db.phases import CancelledBy
from db.provider_events import Event, Kind
from tasks import runtime, sweep
from tasks.deadline import Deadline
from tasks.delivery import Courier
from tasks.message import Sender
from tasks.providers.base import OutgoingMail, Result
from tasks.routes import LIVE
from tests.factories import Factory
from tests.support.api import token_of
from tests.support.courier import create, make_courier

SILENCE = Result(Outcome.UNKNOWN, "reply_lost")
TAKEN = Result(Outcome.ACCEPTED, "accepted", response_status="250 2.0.0")
NOT_NOW = Result(Outcome.TRANSIENT, "not_now", response_status="451 4.3.0")
REFUSED = Result(Outcome.PERMANENT, "rejected", FailureCategory.CONTENT, response_status="554 5.6.0")
FOUND = Result(Outcome.ACCEPTED, "accepted")
NOT_FOUND = Result(Outcome.NOT_SENT, "lookup_not_found")
CANNOT_SAY = Result(Outcome.NOT_SENT, "lookup_failed")
DAY = 86_400.0
PATIENCE = 20  # steps until the end of any case


@dataclass
class StandIn:
    """A provider that says what it is told, the last thing again and again; `calls` is what it was asked."""

    name: str = "stand-in/a"
    replay_window: float = 0.0
    can_look_up: bool = False
    answers: Sequence[Result] = (SILENCE,)
    finds: Sequence[Result] = (NOT_FOUND,)
    calls: list[str] = field(default_factory=list)
    mails: list[tuple[str, bytes]] = field(default_factory=list)

    def send(self, mail: OutgoingMail, deadline: Deadline, hand_over: Callable[[], None]) -> Result:
        hand_over()
        self.mails.append((mail.message_id, mail.digest))
        return self._next("send", self.answers)

    def look_up(self, delivery_key: str, recipient: str, deadline: Deadline) -> Result:
        return self._next("look up", self.finds)

    def close(self) -> None:
        """Nothing is open."""

    def _next(self, call: str, said: Sequence[Result]) -> Result:
        self.calls.append(call)
        return said[min(self.calls.count(call), len(said)) - 1]


class Story:
    """One delivery from its first hand-over to its end, with the seconds at which each provider was asked what."""

    def __init__(self, make: Factory, *providers: StandIn) -> None:
        self.make, self.providers = make, providers
        self.courier = courier(make, providers)
        self.seconds = 0.0
        made = create(make.database, make.key())
        self.delivery_id: UUID = made.delivery_id
        self.verification_id: UUID = made.id
        self.lease = make.claim_by(self.courier)
        self.courier.deliver(self.lease)
        self.told: list[tuple[int, str]] = []
        self.told += [(0, call) for call in self._new_calls()]

    def tell(self) -> list[tuple[int, str]]:
        """Go on to the end, from one due time to the next."""
        for _ in range(PATIENCE):
            wait = self._wait()
            if wait is None:
                return self.told
            self._later(wait)
        raise AssertionError(f"it does not end: {self.told}")

    def end(self) -> str:
        row = self.make.row(self.delivery_id)
        return f"{row['status']}: {row['evidence'] or row['failure_code']}"

    def _wait(self) -> float | None:
        row = self.make.one(
            "SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::float AS wait, completed_at IS NOT NULL AS over"
            " FROM email_outbox WHERE id = %s",
            self.delivery_id,
        )
        return None if row["over"] else max(math.ceil(row["wait"]), 1)

    def _later(self, seconds: float) -> None:
        self.seconds += seconds
        self.make.pass_time(self.delivery_id, seconds=seconds)
        self.courier.drain()  # what a claim may take is its own decision; the sweep comes for the rest
        self.make.execute("TRUNCATE sweep_runs")
        assert sweep.run_once(self.courier, trigger="beat") is not None
        self.courier.drain()
        self.told += [(round(self.seconds), call) for call in self._new_calls()]

    def _new_calls(self) -> list[str]:
        calls = [call for provider in self.providers for call in provider.calls]
        return calls[len(self.told) :]


def courier(make: Factory, providers: Sequence[StandIn]) -> Courier:
    made = make_courier(make.database, "smtp://127.0.0.1:1", unknown_backoff=(30.0, 120.0, 600.0))
    sender = Sender.parse(made.settings.mail_from).address
    routes = {**made.routes, LIVE: runtime._route(LIVE, made.settings, sender, providers)}
    policy = replace(runtime.policy(made.settings, routes), jitter=lambda: 0.0)
    return replace(made, routes=routes, policy=policy)


def searchable(**said: Sequence[Result]) -> StandIn:
    return StandIn(can_look_up=True, **said)


def keyed(window: float = DAY, **said: Sequence[Result]) -> StandIn:
    return StandIn(replay_window=window, **said)


# What the provider is -> what it was asked when (seconds), and how it ended.
CASES = {
    "no key, no look-up: one replay once the window is over, then it stays unresolved": (
        StandIn,
        "send 0, send 1800",
        "failed: outcome_unresolved",
    ),
    "no key: the replay is answered": (
        lambda: StandIn(answers=(SILENCE, TAKEN)),
        "send 0, send 1800",
        "accepted: response",
    ),
    "no key: a refused replay closes itself, not the first hand-over": (
        lambda: StandIn(answers=(SILENCE, NOT_NOW)),
        "send 0, send 1800",
        "failed: outcome_unresolved",
    ),
    "no key: a replay that is refused for good says nothing of the first mail": (
        lambda: StandIn(answers=(SILENCE, REFUSED)),
        "send 0, send 1800",
        "failed: outcome_unresolved",
    ),
    "a key: replays by the schedule, as many as the budget has": (
        keyed,
        "send 0, send 30, send 150, send 750",
        "failed: outcome_unresolved",
    ),
    "a key: the second replay is answered": (
        lambda: keyed(answers=(SILENCE, SILENCE, TAKEN)),
        "send 0, send 30, send 150",
        "accepted: response",
    ),
    "a key: no replay once the provider has forgotten it": (
        lambda: keyed(window=100.0),
        "send 0, send 30",
        "failed: outcome_unresolved",
    ),
    "look-ups: the third finds it": (
        lambda: searchable(finds=(NOT_FOUND, CANNOT_SAY, FOUND)),
        "send 0, look up 30, look up 150, look up 750",
        "accepted: lookup",
    ),
    "look-ups: not found proves nothing, so the one replay waits for the window": (
        lambda: searchable(answers=(SILENCE, TAKEN)),
        "send 0, look up 30, look up 150, look up 750, look up 1350, send 1800",
        "accepted: response",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_what_is_done(make: Factory, case: str) -> None:
    provider, asked, end = CASES[case]
    story = Story(make, provider())
    told = ", ".join(f"{call} {seconds}" for seconds, call in story.tell())
    assert (told, story.end()) == (asked, end)
    assert len(set(story.providers[0].mails)) == 1, "a replay is the same bytes and Message-ID"
    attempts = make.attempts(story.delivery_id)
    assert make.row(story.delivery_id)["replay_count"] == asked.count("send") - 1
    assert all(attempt["error_code"] != "payload_changed" for attempt in attempts)
    assert make.row(story.delivery_id)["attempt_count"] == 1, "replays and look-ups spend no attempt"


def test_an_open_hand_over_never_goes_to_another_provider(make: Factory) -> None:
    first, second = StandIn(), StandIn("stand-in/b", answers=(TAKEN,))
    story = Story(make, first, second)
    story.tell()
    assert (first.calls, second.calls) == (["send", "send"], [])


def test_a_definite_refusal_may_go_to_another_provider(make: Factory) -> None:
    """Nothing is out: what sticks is an open hand-over, not a provider."""
    first, second = StandIn(answers=(NOT_NOW,)), StandIn("stand-in/b", answers=(TAKEN,))
    story = Story(make, first, second)
    story.courier = courier(make, [second])  # MAIL_URL names another one now
    assert story.tell() == [(0, "send"), (60, "send")]
    assert (story.end(), second.calls) == ("accepted: response", ["send"])


def use_token(story: Story) -> None:
    public = ids.public("ver", story.verification_id)
    assert not consumption.consume(story.make.database, token_of(story.make.database, public)).leaked


def answer_late(story: Story) -> None:
    """The worker of the first hand-over had only been paused."""
    answered = AttemptResult(Outcome.ACCEPTED)
    assert leases.settle(story.make.database, story.lease, answered, story.courier.policy).stale


EVIDENCE: dict[str, Callable[[Story], object]] = {
    "webhook": lambda story: provider_events.record(
        story.make.database, Event("stand-in/a", "e1", story.delivery_id, Kind.DELIVERED)
    ),
    "consumed": use_token,
    "response": answer_late,
}


@pytest.mark.parametrize("evidence", EVIDENCE)
@pytest.mark.parametrize("kind", [StandIn, keyed, searchable])
def test_evidence_ends_it_before_anything_else_is_tried(
    make: Factory, kind: Callable[[], StandIn], evidence: str
) -> None:
    story = Story(make, kind())
    EVIDENCE[evidence](story)
    assert story.tell() == [(0, "send")]
    assert story.end() == f"accepted: {evidence}"


@pytest.mark.parametrize("evidence", EVIDENCE)
def test_evidence_counts_after_it_was_given_up(make: Factory, evidence: str) -> None:
    story = Story(make, StandIn())
    story.tell()
    assert story.end() == "failed: outcome_unresolved"
    EVIDENCE[evidence](story)
    assert story.end() == f"accepted: {evidence}"


def test_a_closed_gate_forbids_replays_and_waits_for_evidence(make: Factory) -> None:
    for provider in (StandIn(), keyed()):
        story = Story(make, provider)
        endings.cancel(make.database, None, story.verification_id, by=CancelledBy.CLIENT)
        assert story.tell() == [(0, "send")]
        assert (story.end(), story.seconds) == ("failed: outcome_unresolved", 1800)


def test_a_closed_gate_does_not_forbid_look_ups(make: Factory) -> None:
    story = Story(make, searchable(finds=(NOT_FOUND, FOUND)))
    endings.cancel(make.database, None, story.verification_id, by=CancelledBy.CLIENT)
    assert story.tell() == [(0, "send"), (30, "look up"), (150, "look up")]
    assert story.end() == "accepted: lookup"


def test_a_suppressed_address_gets_no_replay(make: Factory) -> None:
    story = Story(make, StandIn())
    make.execute(
        "INSERT INTO suppressions (id, client_id, email_canonical, reason) VALUES (%s, %s, 'person@example.com', 'bounced')",
        story.delivery_id,
        make.client(),
    )
    assert story.tell() == [(0, "send")]
    assert story.end() == "failed: outcome_unresolved"
