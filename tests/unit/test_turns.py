"""Live mail goes first, test mail has its turns, and neither stops the other."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from tasks import turns
from tasks.routes import Route
from tasks.turns import Turns
from tests.support.races import Later

LIVE, TEST = cast(Any, "live"), cast(Any, "test")  # to whose turn it is, routes are only names


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(turns.deadline, "now", lambda: now[0])
    return now


class Work:
    """So many deliveries a route, each taking its time; counts what was asked and served."""

    def __init__(self, clock: list[float], seconds: dict[str, float], **due: int) -> None:
        self.clock, self.seconds = clock, seconds
        self.due = Counter(due)
        self.asked: list[str] = []
        self.served: Counter[str] = Counter()

    def serve(self, route: Route) -> bool:
        name = cast(str, route)
        self.asked.append(name)
        if not self.due[name]:
            return False
        self.due[name] -= 1
        self.served[name] += 1
        self.clock[0] += self.seconds.get(name, 0.0)
        return True


def first_turn_over(clock: list[float], slots: int = 16) -> Turns:
    """Turns where test mail was asked just now."""
    made = Turns(LIVE, TEST, slots)
    made.next(lambda _: False)
    clock[0] += 0.1
    return made


def test_live_mail_goes_first(clock: list[float]) -> None:
    work = Work(clock, {}, live=1, test=1)
    made = first_turn_over(clock)
    assert made.next(work.serve)
    assert work.asked == ["live"]
    assert made.next(work.serve)
    assert work.asked == ["live", "live", "test"]


def test_an_idle_drain_asks_each_route_once(clock: list[float]) -> None:
    for made in (Turns(LIVE, TEST, 16), first_turn_over(clock)):
        work = Work(clock, {})
        assert not made.next(work.serve)
        assert sorted(work.asked) == ["live", "test"]


def test_an_endless_live_backlog_lets_test_mail_pass_now_and_then(clock: list[float]) -> None:
    work = Work(clock, {"live": 0.01, "test": 0.01}, live=10_000, test=10_000)
    made = Turns(LIVE, TEST, 1)
    for _ in range(1000):
        made.next(work.serve)
    assert 20 <= work.served["test"] <= 60
    assert work.served["live"] >= 940


def test_a_live_backlog_is_hardly_slowed_by_asking_for_test_mail(clock: list[float]) -> None:
    work = Work(clock, {"live": 0.01}, live=10_000)
    made = Turns(LIVE, TEST, 1)
    for _ in range(1000):
        made.next(work.serve)
    assert work.asked.count("test") <= 1000 * 0.01 / 0.25 + 1


def test_slow_test_mail_takes_a_quarter_of_the_time_at_most(clock: list[float]) -> None:
    work = Work(clock, {"live": 0.01, "test": 3.0}, live=1_000_000, test=1_000_000)
    made = Turns(LIVE, TEST, 1)
    started = clock[0]
    while clock[0] < started + 600:
        made.next(work.serve)
    assert 0.15 < 3.0 * work.served["test"] / 600 <= 0.27


@pytest.mark.parametrize(("slots", "share"), [(1, 1), (4, 1), (16, 4)])
def test_test_mail_never_holds_more_than_its_share_of_the_slots(slots: int, share: int) -> None:
    made = Turns(LIVE, TEST, slots)

    def fill(left: int) -> None:
        """Ask again while test mail is being served, as another slot would."""
        if left == 0:
            assert made.next(lambda route: route == LIVE), "a live one finds its way"
            return
        assert made.next(lambda route: route == TEST and bool(Later(lambda: fill(left - 1)).result() or True))

    fill(share)
    with pytest.raises(AssertionError):
        fill(share + 1)


def test_a_turn_that_raises_is_over_all_the_same(clock: list[float]) -> None:
    made = Turns(LIVE, TEST, 1)

    def fail(route: Route) -> bool:
        raise OSError(route)

    with pytest.raises(OSError, match="test"):
        made.next(fail)
    clock[0] += 1.0
    work = Work(clock, {}, test=2)
    assert made.next(work.serve)
    assert work.asked == ["test"], "its slot is free again, and so is its turn"
