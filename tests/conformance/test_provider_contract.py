"""What the delivery engine relies on, whoever carries the mail. A new provider is one more entry in ADAPTERS."""

from __future__ import annotations

import threading
import time
import tracemalloc
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from pathlib import Path

import pytest

from db.delivery_state import FailureCategory, Outcome
from tasks.deadline import Deadline
from tasks.message import Sender, render
from tasks.providers.base import OutgoingMail, Result
from tests.conformance.behaviour import Adapter, Behaviour, Fake
from tests.conformance.smtp_adapter import SMTP

ADAPTERS = [SMTP]

SHORT = 0.5  # seconds, where the deadline is what is tested
LONGER = 1.5  # where the mail must be handed over before it, on a busy machine
LONG = 10.0  # where it must play no part
SLACK = 1.5  # a busy machine's


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    return request.param


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an adapter's server may keep what it needs for all tests, such as certificates."""
    return tmp_path_factory.mktemp("providers")


@pytest.fixture
def start(adapter: Adapter, folder: Path):
    """Start a server that behaves so, and a provider for it."""

    def start(*behaviours: Behaviour) -> AbstractContextManager[Fake]:
        return adapter.start(folder, *behaviours)

    return start


def mail(number: int = 1, **changes: object) -> OutgoingMail:
    values = {
        "delivery_key": f"dlv_{number:032x}",
        "verification_id": f"ver_{number:032x}",
        "recipient": "anna@example.com",
        "token": "0123456789ABCDEF",
        "purpose": "signup",
        "locale": "de",
        "created_at": datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
        "expires_at": datetime(2026, 2, 4, 4, 5, 6, tzinfo=UTC),
        "public_url": "https://verify.example.com",
        "mail_from": Sender("Grüße & Co", "no-reply@mail.example.com"),
    }
    return render(**(values | changes))


class HandOver:
    """Counts its calls, and keeps what the server had of the message at that moment."""

    def __init__(self, fake: Fake, error: BaseException | None = None) -> None:
        self.fake = fake
        self.error = error
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        assert not self.fake.got_any_of_the_message()
        assert not self.fake.delivered
        if self.error is not None:
            raise self.error


def send(fake: Fake, seconds: float = LONG, sent: OutgoingMail | None = None) -> tuple[Result, int]:
    """The result, and how often the mail was handed over."""
    hand_over = HandOver(fake)
    result = fake.provider.send(sent or mail(), Deadline.after(seconds), hand_over)
    return result, hand_over.calls


def test_an_accepted_mail_arrives_byte_for_byte(start) -> None:
    sent = mail()
    with start(Behaviour.ACCEPT) as fake:
        result, handed_over = send(fake, sent=sent)
        (delivered,) = fake.delivered
    assert (result.outcome, result.code, handed_over) == (Outcome.ACCEPTED, "accepted", 1)
    assert delivered.message == sent.mime
    assert (delivered.sender, delivered.recipient) == ("no-reply@mail.example.com", "anna@example.com")


def test_names_and_subjects_beyond_ascii_arrive_readable(start) -> None:
    with start(Behaviour.ACCEPT) as fake:
        send(fake)
        read = message_from_bytes(fake.delivered[0].message, policy=policy.default)
    assert str(read["From"]) == "Grüße & Co <no-reply@mail.example.com>"
    assert str(read["Subject"]) == "Bitte bestätigen Sie Ihre E-Mail-Adresse"
    text = read.get_body(("plain",)).get_content()
    assert "bestätigen" in text
    assert "https://verify.example.com/verify#0123-4567-89AB-CDEF" in text.splitlines()


def test_a_replay_is_the_same_bytes_on_the_wire(start) -> None:
    with start(Behaviour.ACCEPT) as fake:
        for _ in range(2):
            fake.provider.send(mail(), Deadline.after(LONG), lambda: None)
        first, second = fake.delivered
    assert first == second


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (Behaviour.REFUSE_RECIPIENT, (Outcome.PERMANENT, FailureCategory.RECIPIENT, None, 0)),
        (Behaviour.REFUSE_CONTENT, (Outcome.PERMANENT, FailureCategory.CONTENT, None, 1)),
        (Behaviour.NOT_NOW, (Outcome.TRANSIENT, None, None, 0)),
        (Behaviour.NOT_NOW_AFTER_READING, (Outcome.TRANSIENT, None, None, 1)),
        (Behaviour.REFUSE_CREDENTIALS, (Outcome.REFUSED_US, FailureCategory.CONFIG, "config", 0)),
        (Behaviour.BUSY, (Outcome.REFUSED_US, None, "away", 0)),
        (Behaviour.UNREACHABLE, (Outcome.REFUSED_US, None, "away", 0)),
        (Behaviour.WRONG_HOST, (Outcome.REFUSED_US, FailureCategory.CONFIG, "config", 0)),
        (Behaviour.SELF_SIGNED, (Outcome.REFUSED_US, FailureCategory.CONFIG, "config", 0)),
        (Behaviour.EXPIRED, (Outcome.REFUSED_US, FailureCategory.CONFIG, "config", 0)),
    ],
)
def test_each_refusal_is_told_apart(start, behaviour, expected) -> None:
    """Expected: outcome, category, pause, and how often the mail was handed over."""
    with start(behaviour) as fake:
        result, calls = send(fake)
        assert not fake.delivered
    pause = result.pause.kind if result.pause else None
    assert (result.outcome, result.category, pause, calls) == expected


def test_a_result_never_carries_what_the_server_wrote(start) -> None:
    with start(Behaviour.REFUSE_RECIPIENT) as fake:
        result, _ = send(fake)
    assert "@" not in repr(result)
    assert result.response_status == "550 5.1.1"


@pytest.mark.parametrize("behaviour", [Behaviour.SILENT, Behaviour.DRIP])
def test_a_server_that_stalls_before_the_hand_over_is_left_at_the_deadline(start, behaviour) -> None:
    with start(behaviour) as fake:
        before = time.monotonic()
        result, calls = send(fake, SHORT)
        took = time.monotonic() - before
    assert (result.outcome, calls) == (Outcome.REFUSED_US, 0)
    assert SHORT * 0.9 <= took < SHORT + SLACK


@pytest.mark.parametrize(
    "behaviour",
    [Behaviour.TAKE_AND_HANG, Behaviour.TAKE_AND_DRIP, Behaviour.TAKE_AND_NEVER_END],
)
def test_a_server_that_stalls_after_the_hand_over_leaves_the_outcome_unknown(start, behaviour) -> None:
    with start(behaviour) as fake:
        before = time.monotonic()
        result, calls = send(fake, LONGER)
        took = time.monotonic() - before
    assert (result.outcome, calls) == (Outcome.UNKNOWN, 1)
    assert took < LONGER + SLACK


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour.TAKE_AND_RESET,
        Behaviour.TAKE_AND_HANG_UP,
        Behaviour.TAKE_AND_TRUNCATE,
        Behaviour.TAKE_AND_BABBLE,
    ],
)
def test_an_answer_that_is_lost_or_damaged_leaves_the_outcome_unknown(start, behaviour) -> None:
    with start(behaviour) as fake:
        result, calls = send(fake)
        assert len(fake.delivered) == 1
    assert (result.outcome, calls) == (Outcome.UNKNOWN, 1)


def test_at_the_deadline_the_connection_is_reset_before_the_result_is_told(start) -> None:
    with start(Behaviour.TAKE_AND_HANG) as fake:
        send(fake, LONGER)
        assert fake.wait_until_cut() == "reset"


def test_an_answer_without_end_is_read_in_bounded_memory(start) -> None:
    with start(Behaviour.ENDLESS) as fake:
        tracemalloc.start()
        result, calls = send(fake, LONGER)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (result.outcome, calls) == (Outcome.REFUSED_US, 0)
    assert peak < 4_000_000


def test_a_server_that_accepts_what_it_does_not_have_is_not_believed(start) -> None:
    with start(Behaviour.ACCEPT_EARLY) as fake:
        result, calls = send(fake, SHORT)
        assert not fake.delivered
    assert result.outcome in {Outcome.TRANSIENT, Outcome.REFUSED_US}
    assert calls == 0


@pytest.mark.parametrize("error", [RuntimeError("lease lost"), OSError("database away"), SystemExit(1)])
def test_what_the_hand_over_raises_comes_out_unchanged_and_nothing_is_sent(start, error) -> None:
    with start(Behaviour.ACCEPT) as fake:
        hand_over = HandOver(fake, error)
        with pytest.raises(type(error)) as raised:
            fake.provider.send(mail(), Deadline.after(LONG), hand_over)
        assert fake.wait_until_cut() == "reset"
        assert not fake.got_any_of_the_message()
        assert not fake.delivered
    assert raised.value is error
    assert hand_over.calls == 1


def test_a_refused_hand_over_does_not_spoil_the_next_mail(start) -> None:
    def refuse() -> None:
        raise RuntimeError("the gate is closed")

    with start(Behaviour.ACCEPT) as fake:
        fake.provider.send(mail(1), Deadline.after(LONG), lambda: None)
        with pytest.raises(RuntimeError):
            fake.provider.send(mail(2), Deadline.after(LONG), refuse)
        result = fake.provider.send(mail(3), Deadline.after(LONG), lambda: None)
        keys = [message_from_bytes(taken.message)["X-Countersign-Delivery"] for taken in fake.delivered]
    assert result.outcome is Outcome.ACCEPTED
    assert keys == [mail(1).delivery_key, mail(3).delivery_key]


def test_time_that_the_hand_over_used_up_is_no_longer_there_to_send(start) -> None:
    deadline = Deadline.after(LONGER)

    def slow() -> None:
        while not deadline.expired:
            time.sleep(deadline.remaining())

    with start(Behaviour.ACCEPT) as fake:
        result = fake.provider.send(mail(), deadline, slow)
        fake.wait_until_cut()
        assert not fake.got_any_of_the_message()
    assert result.outcome is Outcome.NOT_SENT


def test_a_deadline_that_is_over_blames_neither_mail_nor_provider(start) -> None:
    with start(Behaviour.ACCEPT) as fake:
        result, calls = send(fake, 0)
    assert (result.outcome, result.pause, calls) == (Outcome.NOT_SENT, None, 0)


def test_neighbouring_mails_share_a_connection(start) -> None:
    with start(Behaviour.ACCEPT) as fake:
        results = [fake.provider.send(mail(n), Deadline.after(LONG), lambda: None) for n in range(5)]
        assert len(fake.delivered) == 5
        assert fake.connections == 1
    assert {result.outcome for result in results} == {Outcome.ACCEPTED}


def test_a_connection_that_died_while_idle_is_replaced_without_a_word(start) -> None:
    with start(Behaviour.HANG_UP_WHILE_IDLE, Behaviour.ACCEPT) as fake:
        first = fake.provider.send(mail(1), Deadline.after(LONG), lambda: None)
        handed_over: list[int] = []
        second = fake.provider.send(mail(2), Deadline.after(LONG), lambda: handed_over.append(1))
        assert len(fake.delivered) == 2
    assert (first.outcome, second.outcome) == (Outcome.ACCEPTED, Outcome.ACCEPTED)
    assert handed_over == [1]


def test_many_threads_send_at_once(start) -> None:
    results: list[Outcome] = []

    def several(first: int) -> None:
        for number in range(first, first + 10):
            results.append(fake.provider.send(mail(number), Deadline.after(LONG), lambda: None).outcome)

    with start(Behaviour.ACCEPT) as fake:
        threads = [threading.Thread(target=several, args=(n * 10,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        keys = {message_from_bytes(taken.message)["X-Countersign-Delivery"] for taken in fake.delivered}
        assert fake.connections <= 8
    assert results == [Outcome.ACCEPTED] * 80
    assert len(keys) == 80


def test_a_message_with_a_bare_line_end_is_not_sent(start) -> None:
    with start(Behaviour.ACCEPT) as fake:
        sent = replace(mail(), mime=mail().mime + b"\n.\r\nMAIL FROM:<mallory@example.com>\r\n")
        result, calls = send(fake, sent=sent)
    assert (result.outcome, result.category, calls) == (Outcome.PERMANENT, FailureCategory.CONTENT, 0)


def test_a_name_is_safe_to_log_and_short(start) -> None:
    with start(Behaviour.ACCEPT) as fake:
        name = fake.provider.name
    assert len(name) <= 64
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789./_-")
    assert "secret" not in name
