"""Kicks: coalesced, never blocking, never raising."""

from __future__ import annotations

import threading

from tasks.kicker import Kicker
from tests.support.cluster import wait_for


def test_a_burst_of_kicks_is_sent_as_few() -> None:
    sent: list[int] = []
    busy = threading.Event()

    def send() -> None:
        sent.append(1)
        busy.wait(5)

    kicker = Kicker(send, lambda: 0)
    for _ in range(1000):
        kicker.kick()
    wait_for(lambda: sent, "the first kick")
    for _ in range(1000):
        kicker.kick()
    busy.set()
    wait_for(lambda: len(sent) == 2, "the second")
    assert not kicker._wanted.is_set()


def test_no_kick_is_added_to_a_queue_that_holds_enough() -> None:
    sent: list[int] = []
    assert Kicker(lambda: sent.append(1), lambda: 4).run_once()
    assert sent == []
    assert Kicker(lambda: sent.append(1), lambda: 3).run_once()
    assert sent == [1]


def test_a_broker_that_is_away_costs_the_caller_nothing() -> None:
    def away() -> int:
        raise ConnectionRefusedError

    kicker = Kicker(lambda: None, away)
    assert not kicker.run_once()
    kicker.kick()


def test_after_a_broker_error_it_rests_and_tries_again() -> None:
    tries: list[int] = []
    kicker = Kicker(lambda: None, lambda: 0, rest=0.01)
    results = iter([False, True])
    kicker.run_once = lambda: tries.append(1) or next(results)  # type: ignore[method-assign, func-returns-value]
    kicker.kick()
    wait_for(lambda: len(tries) == 2, "the second try, without another kick")
