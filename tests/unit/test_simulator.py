"""The simulator keeps a provider's contract; what becomes of a mail is written on its address."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from db.delivery_state import FailureCategory, Outcome
from tasks import deadline as clock
from tasks.deadline import Deadline
from tasks.message import Sender, render
from tasks.providers import simulator
from tasks.providers.base import LookUp, OutgoingMail, Reports, Result
from tasks.providers.registry import providers_from_url
from tasks.providers.simulator import FATES, Simulator
from tasks.shutdown import Shutdown
from tests.support.races import Later, together

KEY = f"dlv_{1:032x}"
LONG = 10.0


def mail(recipient: str, attempt: int = 1) -> OutgoingMail:
    rendered = render(
        delivery_key=KEY,
        verification_id=f"ver_{1:032x}",
        recipient=recipient,
        token="0123456789ABCDEF",
        purpose="signup",
        locale="en",
        created_at=datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
        expires_at=datetime(2026, 2, 4, 4, 5, 6, tzinfo=UTC),
        public_url="https://verify.example.com",
        mail_from=Sender("", "no-reply@mail.example.com"),
    )
    return replace(rendered, attempt=attempt)


def send(recipient: str, attempt: int = 1) -> tuple[Result, int]:
    """The result, and how often the mail was handed over."""
    calls: list[None] = []
    provider = Simulator(Shutdown(), slow_seconds=0.01)
    result = provider.send(mail(recipient, attempt), Deadline.after(LONG), lambda: calls.append(None))
    return result, len(calls)


@pytest.mark.parametrize(
    ("name", "attempt", "expected"),
    [
        ("accepted", 1, (Outcome.ACCEPTED, None, 1)),
        ("ada", 1, (Outcome.ACCEPTED, None, 1)),
        ("slow", 1, (Outcome.ACCEPTED, None, 1)),
        ("delivered", 1, (Outcome.ACCEPTED, None, 1)),
        ("bounce", 1, (Outcome.ACCEPTED, None, 1)),
        ("complaint", 1, (Outcome.ACCEPTED, None, 1)),
        ("transient", 1, (Outcome.TRANSIENT, None, 0)),
        ("transient", 2, (Outcome.ACCEPTED, None, 1)),
        ("exhausted", 1, (Outcome.TRANSIENT, None, 0)),
        ("exhausted", 6, (Outcome.TRANSIENT, None, 0)),
        ("rejected", 1, (Outcome.PERMANENT, FailureCategory.RECIPIENT, 0)),
        ("content", 1, (Outcome.PERMANENT, FailureCategory.CONTENT, 1)),
        ("unknown", 1, (Outcome.UNKNOWN, None, 1)),
        ("unresolved", 1, (Outcome.UNKNOWN, None, 1)),
    ],
)
def test_each_address_has_its_fate(
    name: str, attempt: int, expected: tuple[Outcome, FailureCategory | None, int]
) -> None:
    """Expected: outcome, category, and how often the mail was handed over."""
    result, handed_over = send(f"{name}@example.com", attempt)
    assert (result.outcome, result.category, handed_over) == expected
    assert "@" not in repr(result)
    assert (result.response_status is None) == (result.outcome is Outcome.UNKNOWN), "no answer, no status"


@pytest.mark.parametrize("address", ["rejected+42@host.example", "REJECTED@x.test", "rejected+a+b@a.example"])
def test_what_stands_before_the_plus_counts_at_any_domain(address: str) -> None:
    assert send(address)[0].outcome is Outcome.PERMANENT


@pytest.mark.parametrize("address", ["not-rejected@example.com", "a@rejected.example", "re+jected@x.test"])
def test_nothing_else_does(address: str) -> None:
    assert send(address)[0].outcome is Outcome.ACCEPTED


@pytest.mark.parametrize("fate", sorted(FATES - {"rejected", "exhausted", "transient"}))
@pytest.mark.parametrize("error", [RuntimeError("lease lost"), SystemExit(1)])
def test_what_the_hand_over_raises_comes_out_unchanged(fate: str, error: BaseException) -> None:
    def refuse() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        Simulator(Shutdown()).send(mail(f"{fate}@example.com"), Deadline.after(LONG), refuse)
    assert raised.value is error


@pytest.mark.parametrize("fate", sorted(FATES))
def test_a_deadline_that_is_over_blames_nobody(fate: str) -> None:
    handed_over: list[None] = []
    result = Simulator(Shutdown()).send(
        mail(f"{fate}@example.com"), Deadline.after(0), lambda: handed_over.append(None)
    )
    assert (result.outcome, handed_over) == (Outcome.NOT_SENT, [])


def test_time_that_the_hand_over_used_up_is_no_longer_there_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    def hand_over() -> None:
        now[0] += 2 * LONG

    result = Simulator(Shutdown()).send(mail("accepted@example.com"), Deadline.after(LONG), hand_over)
    assert result.outcome is Outcome.NOT_SENT


@pytest.mark.parametrize(
    ("seconds", "took"), [(LONG, simulator.SLOW_SECONDS), (1.0, 0.5)], ids=["usual", "hurried"]
)
def test_a_slow_one_takes_its_time_but_never_the_whole(
    monkeypatch: pytest.MonkeyPatch, seconds: float, took: float
) -> None:
    now = [100.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    monkeypatch.setattr(simulator.time, "sleep", lambda pause: now.__setitem__(0, now[0] + pause))
    result = Simulator(Shutdown()).send(mail("slow@example.com"), Deadline.after(seconds), lambda: None)
    assert result.outcome is Outcome.ACCEPTED
    assert now[0] - 100.0 == pytest.approx(took)


def test_a_slow_one_hurries_when_the_worker_has_to_stop() -> None:
    shutdown = Shutdown()
    provider = Simulator(shutdown, slow_seconds=3600.0)
    sent = Later(
        lambda: provider.send(mail("slow@example.com"), Deadline.after(7200.0), lambda: None).outcome
    )
    shutdown.requested = True
    assert sent.result() is Outcome.ACCEPTED


def test_it_can_be_asked_later_and_has_what_it_did_not_answer() -> None:
    provider = Simulator(Shutdown())
    assert isinstance(provider, LookUp)
    answers = {
        fate: provider.look_up(KEY, f"{fate}@example.com", Deadline.after(LONG))
        for fate in ("unknown", "unresolved")
    }
    assert answers["unknown"].outcome is Outcome.ACCEPTED
    assert (answers["unresolved"].outcome, answers["unresolved"].code) == (
        Outcome.NOT_SENT,
        "lookup_not_found",
    )


def test_it_reports_with_the_same_event_id_each_time() -> None:
    provider = Simulator(Shutdown())
    assert isinstance(provider, Reports)
    kinds: dict[str, list[str]] = {}
    for fate in FATES:
        reports = provider.reports(KEY, f"{fate}@example.com")
        assert reports == provider.reports(KEY, f"{fate}+again@example.com")
        if reports:
            kinds[fate] = [report.kind for report in reports]
    assert kinds == {"delivered": ["delivered"], "bounce": ["bounced"], "complaint": ["complained"]}


def test_many_threads_send_at_once() -> None:
    assert {result.outcome for result, _ in together(8, lambda n: send(f"ada{n}@example.com"))} == {
        Outcome.ACCEPTED
    }


def test_no_entry_of_mail_url_is_it() -> None:
    for url in ("simulator://x", "smtp://127.0.0.1:1?label=simulator"):
        try:
            names = [provider.name for provider in providers_from_url(url)]
        except ValueError:
            continue
        assert simulator.NAME not in names
