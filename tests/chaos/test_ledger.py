"""The ledger refuses books that were cooked: each line changes one thing of a good one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from db import ids
from tests.chaos.book import Asked, Book, Call
from tests.chaos.facts import Facts, Pause, Terms
from tests.chaos.ledger import RULES, check
from tests.chaos.mailbox import Mail

START = datetime(2026, 1, 1, tzinfo=UTC)
VERIFICATION, DELIVERY, ACCOUNT = UUID(int=1), UUID(int=2), UUID(int=3)
TERMS = Terms(lease=8.0, evidence_window=10.0, max_attempts=3, min_token_life=2.0, delivery_deadline=30.0)
KEY = "key-1"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def attempt(
    lease: int, handed_over: float | None, finished: float | None, outcome: str | None, **changed: Any
) -> Any:
    return {
        "delivery_id": DELIVERY,
        "lease_token": lease,
        "worker": f"host:{100 + lease}:0",
        "provider": "smtp/mail1",
        "started_at": at((handed_over or finished or 1.0) - 0.1),
        "handed_over_at": None if handed_over is None else at(handed_over),
        "finished_at": None if finished is None else at(finished),
        "outcome": outcome,
        "stale": False,
        **changed,
    }


def mail(seconds: float, **changed: Any) -> Mail:
    values = {"delivery_id": ids.public("dlv", DELIVERY), "token": "T", "server": "mail1", **changed}
    return Mail(at=at(seconds).timestamp(), **values)


def change(number: int, before: str | None, after: str, delivery: UUID | None = DELIVERY) -> dict[str, Any]:
    return {"id": number, "seq": number, "delivery_id": delivery, "before": before, "after": after}


def call(what: str, about: str, status: int, code: str = "", retry_after: str = "", **answer: str) -> Call:
    return Call(what, about, 0.0, 1.0, status, code, retry_after, answer)


class Books:
    """A verification that was asked for, sent, accepted and confirmed; to be cooked."""

    def __init__(self) -> None:
        self.verification = {
            "id": VERIFICATION,
            "account_id": ACCOUNT,
            "idempotency_key": KEY,
            "status": "consumed",
            "purpose": "signup",
            "email": "person@example.com",
            "expires_at": at(3600),
        }
        self.delivery: dict[str, Any] = {
            "id": DELIVERY,
            "verification_id": VERIFICATION,
            "status": "accepted",
            "evidence": "response",
            "failure_category": None,
            "failure_code": None,
            "gate_reason": None,
            "lease_token": 1,
            "attempt_count": 1,
            "lost_count": 0,
            "replay_count": 0,
            "created_at": at(0),
            "completed_at": at(1.5),
        }
        self.account = {
            "id": ACCOUNT,
            "external_id": "a",
            "activated_at": at(5),
            "email": "person@example.com",
        }
        self.attempts = [attempt(1, 1.0, 1.5, "accepted")]
        self.mails = [mail(1.2)]
        self.changes = [change(1, None, "pending"), change(2, "sending", "accepted")]
        self.gates: list[dict[str, Any]] = []
        self.pauses: list[Pause] = []
        self.asked = [Asked(KEY, "a", "person@example.com", "signup")]
        public = ids.public("ver", VERIFICATION)
        self.calls = [
            call("create", KEY, 202, verification_id=public),
            call("consume", ids.public("dlv", DELIVERY), 200, verification_id=public),
        ]
        self.feed = [{"cursor": "1"}, {"cursor": "2"}]
        self.verifications, self.deliveries = [self.verification], [self.delivery]

    def replayed(self) -> None:
        """It was sent, not answered, and sent again when the window was over."""
        self.attempts = [attempt(1, 1.0, 4.0, "unknown"), attempt(2, 11.5, 12.0, "accepted")]
        self.mails = [mail(1.2, said="nothing"), mail(11.7)]
        self.delivery |= {"lease_token": 2, "replay_count": 1, "completed_at": at(12.0)}

    def failed(self) -> None:
        """It was refused for good."""
        self.attempts = [attempt(1, None, 1.5, "permanent")]
        self.mails, self.calls = [], self.calls[:1]
        self.delivery |= {"status": "failed", "evidence": None}
        self.delivery |= {"failure_category": "recipient", "failure_code": "no_such_mailbox"}
        self.changes[1] = change(2, "sending", "failed")
        self.verification["status"] = "requested"
        self.account |= {"activated_at": None, "email": None}

    def facts(self) -> Facts:
        book = Book()
        book.calls, book.feed = self.calls, list(self.feed)
        for asked in self.asked:
            book.ask(asked)
        rows: dict[str, Any] = {
            "verifications": self.verifications,
            "deliveries": self.deliveries,
            "attempts": self.attempts,
            "accounts": [self.account],
            "changes": self.changes,
            "gates": self.gates,
        }
        return Facts(**rows, mails=self.mails, book=book, terms=TERMS, pauses=self.pauses)

    def breaches(self) -> list[str]:
        return list(map(str, check(self.facts())))


def nothing(books: Books) -> None:
    pass


@pytest.mark.parametrize("story", [nothing, Books.replayed, Books.failed])
def test_good_books_pass(story: Callable[[Books], None]) -> None:
    books = Books()
    story(books)
    assert books.breaches() == []


Cook = Callable[[Books], Any]
FROM_ACCEPTED: dict[str, Cook] = {
    "was answered with 2 verifications": lambda b: b.calls.append(
        call("create", KEY, 202, verification_id="ver_other")
    ),
    "was acknowledged for key-1 and is not there": lambda b: b.calls.insert(
        0, call("create", KEY, 202, verification_id="ver_lost")
    ),
    "is another's": lambda b: b.verification.update(idempotency_key="key-2"),
    "nobody asked for": lambda b: b.asked.clear(),
    "has 2 verifications": lambda b: b.verifications.append(dict(b.verification)),
    "has 0 deliveries": lambda b: b.verifications.append({**b.verification, "id": UUID(int=9)}),
    "was never answered": lambda b: b.asked.append(Asked("key-3", "b", "", "signup")),
    "create was answered 500": lambda b: b.calls.append(call("create", KEY, 500, "internal_error")),
    "create was answered 503": lambda b: b.calls.append(call("create", KEY, 503, "database_unavailable")),
    "consume was answered 422": lambda b: b.calls.append(call("consume", "x", 422, "verification_invalid")),
    "was confirmed 2 times": lambda b: b.calls.append(b.calls[1]),
    "was confirmed and is requested": lambda b: b.verification.update(status="requested"),
    "nobody used its token": lambda b: b.calls.pop(1),
    "is active without a signup, or the reverse": lambda b: b.account.update(activated_at=None),
    "has an address that was not confirmed": lambda b: b.account.update(email="other@example.com"),
    "1 changes have no number": lambda b: b.changes[1].update(seq=None),
    "the numbers have gaps": lambda b: b.changes[1].update(seq=3),
    "the follower missed 1 changes": lambda b: b.feed.pop(),
    "twice or out of order": lambda b: b.feed.append({"cursor": "2"}),
    "it is still sending": lambda b: b.delivery.update(status="sending"),
    "accepted without evidence": lambda b: b.delivery.update(evidence=None),
    "failed without category": lambda b: b.delivery.update(status="failed"),
    "nobody cancelled it": lambda b: b.delivery.update(status="cancelled"),
    "by a response that no attempt had": lambda b: b.attempts[0].update(outcome="unknown"),
    "by a consumption that was not": lambda b: (
        b.delivery.update(evidence="consumed"),
        b.verification.update(status="expired"),
    ),
    "was never handed over": lambda b: b.attempts[0].update(handed_over_at=None),
    "of 3 leases these left an attempt": lambda b: b.delivery.update(lease_token=3),
    "attempt_count is 0 of 1": lambda b: b.delivery.update(attempt_count=0),
    "lost_count is 2": lambda b: b.delivery.update(lost_count=2),
    "its budget of 3 is overdrawn": lambda b: b.delivery.update(attempt_count=4),
    "handed over after the last instant": lambda b: b.verification.update(expires_at=at(2.5)),
    "handed over although it was superseded": lambda b: (
        b.delivery.update(gate_reason="superseded"),
        b.gates.append({"delivery_id": DELIVERY, "at": at(0.5)}),
    ),
    "went from accepted to failed": lambda b: b.changes.append(change(3, "accepted", "failed")),
    "its last change is not its state": lambda b: b.changes.pop(),
    "a mail for dlv_x, which does not exist": lambda b: b.mails.append(mail(1.0, delivery_id="dlv_x")),
    "belongs to none of 1 hand-overs": lambda b: b.mails.append(mail(1.3)),
    "and no server took it": lambda b: b.mails.clear(),
    "by a response that no server gave": lambda b: b.mails.__setitem__(0, mail(1.2, said="nothing")),
    "is not_sent, and its mail was taken": lambda b: b.attempts[0].update(outcome="not_sent"),
    "its mail was accepted, and it is expired": lambda b: b.delivery.update(status="expired"),
}
FROM_REPLAYED: dict[str, Cook] = {
    "before its window was over": lambda b: b.attempts[1].update(handed_over_at=at(9.0)),
    "through another provider": lambda b: b.attempts[1].update(provider="smtp/mail2"),
    "1 replays, 0 of them recorded": lambda b: b.delivery.update(replay_count=0),
    "it was replayed 2 times": lambda b: b.delivery.update(replay_count=2),
    "2 mails, 0 replays recorded": lambda b: b.delivery.update(replay_count=0),
    "although the first mail was answered": lambda b: b.attempts[0].update(outcome="accepted"),
    "was settled after lease 2 had begun": lambda b: b.attempts[0].update(finished_at=at(12.5)),
    "lease 1 has no outcome": lambda b: (
        b.attempts[0].update(outcome=None),
        b.delivery.update(status="failed"),
    ),
    "different tokens": lambda b: b.mails.__setitem__(1, mail(11.7, token="other")),
    "belongs to none of 2 hand-overs": lambda b: b.mails.__setitem__(0, mail(10.1)),
}
FROM_FAILED: dict[str, Cook] = {
    "not by its last lease": lambda b: b.attempts[0].update(stale=True),
    "handed over after the end": lambda b: b.attempts[0].update(handed_over_at=at(2.0)),
}


def cooked(story: Cook, how: Cook) -> list[str]:
    books = Books()
    story(books)
    how(books)
    return books.breaches()


@pytest.mark.parametrize(
    ("story", "text", "how"),
    [
        *((nothing, text, how) for text, how in FROM_ACCEPTED.items()),
        *((Books.replayed, text, how) for text, how in FROM_REPLAYED.items()),
        *((Books.failed, text, how) for text, how in FROM_FAILED.items()),
    ],
)
def test_cooked_books_are_found_out(story: Cook, text: str, how: Cook) -> None:
    assert any(text in breach for breach in cooked(story, how)), cooked(story, how)


def test_a_late_mail_of_a_worker_that_froze_right_after_its_hand_over_is_what_remains() -> None:
    books = Books()
    books.replayed()
    books.mails[0] = mail(10.1, said="nothing")
    books.pauses = [Pause(101, at(1.01).timestamp(), at(10.0).timestamp())]
    assert books.breaches() == []


def test_a_worker_that_froze_before_its_hand_over_has_no_such_excuse() -> None:
    books = Books()
    books.replayed()
    books.mails[0] = mail(10.1, said="nothing")
    books.pauses = [Pause(101, at(0.9).timestamp(), at(10.0).timestamp())]
    assert books.breaches() != []


def test_a_server_that_stores_and_refuses_explains_a_duplicate() -> None:
    books = Books()
    books.attempts = [attempt(1, 1.0, 1.3, "transient"), attempt(2, 2.0, 2.5, "accepted")]
    books.mails = [mail(1.2, said="refused"), mail(2.2)]
    books.delivery |= {"lease_token": 2, "attempt_count": 2}
    assert books.breaches() == []


def test_every_rule_has_been_seen_to_fail() -> None:
    """A rule that no cooked book breaks may be no rule at all."""
    books = [
        (story, how)
        for story, cooks in (
            (nothing, FROM_ACCEPTED),
            (Books.replayed, FROM_REPLAYED),
            (Books.failed, FROM_FAILED),
        )
        for how in cooks.values()
    ]
    silent = set(RULES)
    for story, how in books:
        made = Books()
        story(made)
        how(made)
        silent -= {rule for rule in silent if list(rule(made.facts()))}
    assert {rule.__name__ for rule in silent} == set()
