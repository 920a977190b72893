"""A process's sending slots and where its claims start to scan."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

from db.leases import BEGINNING, Lease, Position
from tasks import deadline

_LONGEST_TRANSACTION = timedelta(seconds=5)
_SHARE_OF_TIME = 100  # scans from the beginning take at most 1 % of one claimer's time


class Slots:
    """At most `count` slots send at once, whoever asks: tasks, or the timer's threads when the broker is gone."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free: queue.LifoQueue[int] = queue.LifoQueue()
        for number in range(count):
            self._free.put(number)

    @contextmanager
    def take(self) -> Iterator[str]:
        """Hold a slot; yields the owner's name, `host:pid:slot`. Waits for a free one."""
        number = self._free.get()
        try:
            yield f"{socket.gethostname()}:{os.getpid()}:{number}"
        finally:
            self._free.put(number)


class ScanStart:
    """Where the next claim's index scan starts (docs/architecture.md, "Position").

    Rows behind the last claimed one are dead versions; passing over them again would cost more with each claim while
    another session pins them. Once an interval one claim starts at the beginning, for rows whose claimer died before
    its commit.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._lock = threading.Lock()
        self._position = BEGINNING
        self._from_beginning_at = 0.0

    @contextmanager
    def next(self) -> Iterator[Position]:
        """The position for one claim."""
        started = deadline.now()
        with self._lock:
            from_beginning = started >= self._from_beginning_at
            if from_beginning:
                self._from_beginning_at = started + self._interval
            position = BEGINNING if from_beginning else self._position
        yield position
        if from_beginning:
            ended = deadline.now()
            with self._lock:
                self._from_beginning_at = ended + max(self._interval, _SHARE_OF_TIME * (ended - started))

    def rewind(self) -> None:
        """The next claim starts at the beginning: something due lies behind the position."""
        with self._lock:
            self._from_beginning_at = 0.0

    @property
    def position(self) -> Position:
        """Where a look for due work starts."""
        return self._position

    def claimed(self, lease: Lease) -> None:
        """Move on to what was just claimed, but never closer to the present than a transaction may take to commit."""
        reached = min(
            (lease.due_at, lease.delivery_id), (lease.claimed_at - _LONGEST_TRANSACTION, UUID(int=0))
        )
        with self._lock:
            if lease.action == "send":
                self._position = Position(reached, self._position.unknown)
            else:
                self._position = Position(self._position.pending, reached)
