"""Settling a race on purpose: hold a lock on a second connection until the other side waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import psycopg

T = TypeVar("T")
S = TypeVar("S")
DEADLINE_SECONDS = 10.0

# What moves a delivery (but for its claim) writes there last, when it holds the row. What moves a verification does so first.
BEFORE_THE_LAST_WRITE = "LOCK TABLE state_changes IN SHARE MODE"


class Later(Generic[T]):
    """A call that runs in a thread; `result()` waits for it and raises what it raised."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._outcome: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._outcome[:] = [call(), None]
        except BaseException as error:
            self._outcome[:] = [None, error]

    def result(self) -> T:
        """What the call answered, within the deadline."""
        self._thread.join(DEADLINE_SECONDS)
        assert self._outcome, "the call does not end"
        value, error = self._outcome
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]


def together(count: int, call: Callable[[int], T]) -> list[T]:
    """`count` calls that start at the same instant; their results."""
    barrier = threading.Barrier(count)

    def start(number: int) -> T:
        barrier.wait(DEADLINE_SECONDS)
        return call(number)

    calls = [Later(lambda number=number: start(number)) for number in range(count)]  # type: ignore[misc]
    return [call.result() for call in calls]


@contextmanager
def holding(url: str, statement: Any, *parameters: Any) -> Iterator[psycopg.Connection[Any]]:
    """A transaction of a second connection that has run `statement`, committed on leaving."""
    with psycopg.connect(url) as connection:
        connection.execute(statement, parameters or None)
        yield connection


def in_turn(url: str, lock: Any, first: Callable[[], T], second: Callable[[], S]) -> tuple[T, S]:
    """Both come to wait while another connection holds `lock`, `second` behind `first`; their results after its release."""
    with holding(url, lock):
        earlier = Later(first)
        wait_until_blocked(url)
        later = Later(second)
        wait_until_blocked(url, 2)
    return earlier.result(), later.result()


@contextmanager
def in_the_middle(url: str, call: Callable[[], T]) -> Iterator[Later[T]]:
    """`call` has locked a delivery and moved it, and stands before its transaction's last write until this is left."""
    with holding(url, BEFORE_THE_LAST_WRITE):
        later = Later(call)
        wait_until_blocked(url)
        yield later


def wait_until_blocked(url: str, count: int = 1) -> None:
    """Until so many sessions of this database wait for a lock."""
    with psycopg.connect(url, autocommit=True) as connection:
        end = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < end:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchone()
            if row and row[0] >= count:
                return
            time.sleep(0.005)
    raise AssertionError("nobody waits for a lock")
