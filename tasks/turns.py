"""Whose turn it is: how the routes share a process's slots."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tasks import deadline
from tasks.routes import Route

_SHARE = 4  # test mail gets a quarter: of the slots, and of one slot's time while live mail waits
_PAUSE_SECONDS = 0.25  # between its turns at least, so that asking it in vain costs four claims a second

Serve = Callable[[Route], bool]


class Turns:
    """Live mail goes first. Yet test mail has a turn now and then, so that an endless live backlog does not stop it, and
    holds at most its share of the slots, so that none of its own stops live mail.
    """

    def __init__(self, live: Route, test: Route, slots: int) -> None:
        self._live, self._test = live, test
        self._test_slots = threading.BoundedSemaphore(max(1, slots // _SHARE))
        self._lock = threading.Lock()
        self._test_goes_first_at = 0.0

    def next(self, serve: Serve) -> bool:
        """Have one delivery of the route whose turn it is served, or else of the other. False: `serve` found none.

        `serve` claims and delivers one delivery of a route and answers whether there was one.
        """
        if not self._take_the_turn_of_test():
            return serve(self._live) or self._serve_test(serve)
        started = deadline.now()
        try:
            if self._serve_test(serve):
                return True
        finally:
            self._end_the_turn_of_test(started)
        return serve(self._live)

    def _serve_test(self, serve: Serve) -> bool:
        """Nothing while its share is taken: those who hold it go on."""
        if not self._test_slots.acquire(blocking=False):
            return False
        try:
            return serve(self._test)
        finally:
            self._test_slots.release()

    def _take_the_turn_of_test(self) -> bool:
        with self._lock:
            if deadline.now() < self._test_goes_first_at:
                return False
            self._test_goes_first_at = float("inf")  # until this turn ends
            return True

    def _end_the_turn_of_test(self, started: float) -> None:
        ended = deadline.now()
        with self._lock:
            self._test_goes_first_at = ended + max(_PAUSE_SECONDS, (_SHARE - 1) * (ended - started))
