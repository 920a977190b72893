"""A worker that can be stopped at any step, to go on late or never. One runs at a time, so that no run depends on chance."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextvars import ContextVar

DEADLINE_SECONDS = 20.0


class Killed(BaseException):
    """The process is gone. No handler of the product's may catch it: none would run."""


class Process:
    """Some work in a thread of its own, which stands still unless `go` lets it run."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.at: str | None = "start"  # where it stands; None: it has ended
        self._until: str | None = None
        self._passed = "start"
        self._orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stops: queue.SimpleQueue[tuple[str | None, BaseException | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def go(self, until: str | None = None) -> None:
        """Run to the next point of that name, or to the end. Raises what the work raised."""
        assert self.at is not None, "it has ended"
        self._until = until
        self._order(alive=True)

    def kill(self) -> None:
        """Nothing of it runs any more; what it had not committed is gone."""
        if self.at is not None:
            self._order(alive=False)

    def point(self, name: str) -> None:
        """Called by the work: a place where it may have to stand still. A commit is named by what came before it."""
        if name == "committed":
            name = _COMMITS.get(self._passed, name)
        self._passed = name
        if name == self._until:
            self._stops.put((name, None))
            self._wait()

    def _order(self, *, alive: bool) -> None:
        self._orders.put(alive)
        self.at, error = self._stops.get(timeout=DEADLINE_SECONDS)
        if error is not None and not isinstance(error, Killed):
            raise error

    def _wait(self) -> None:
        if not self._orders.get():
            raise Killed

    def _run(self, work: Callable[[], None]) -> None:
        _current.set(self)
        error: BaseException | None = None
        try:
            self._wait()
            work()
        except BaseException as raised:
            error = raised
        self._stops.put((None, error))


# Where a worker's slot can stand still, in the order in which it comes by.
POINTS = ("claimed", "connected", "stamped", "handed over", "sent")
_COMMITS = {"start": "claimed", "connected": "stamped", "sent": "settled"}
_current: ContextVar[Process | None] = ContextVar("process", default=None)


def point(name: str) -> None:
    """A place where the process that runs this may stand still; nothing happens outside of one."""
    process = _current.get()
    if process is not None:
        process.point(name)
