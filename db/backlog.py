"""How much room a client's backlog has, remembered for a moment: counting thousands of rows at each request would cost more
than all the rest of it."""

from __future__ import annotations

import threading
import time
from uuid import UUID

_FRESH_SECONDS = 1.0
_SHARE = 10  # of the room that was found, one process uses a tenth before it counts again
_MOST_CLIENTS = 10_000


class Rooms:
    """What this process may let through without counting. Never refuses: only a count does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rooms: dict[UUID, tuple[float, int]] = {}

    def take(self, client_id: UUID) -> bool:
        """Use a place of the room last found; False: count."""
        with self._lock:
            until, left = self._rooms.get(client_id, (0.0, 0))
            if left <= 0 or time.monotonic() >= until:
                return False
            self._rooms[client_id] = (until, left - 1)
            return True

    def found(self, client_id: UUID, room: int) -> None:
        """A count left so many places."""
        with self._lock:
            if len(self._rooms) >= _MOST_CLIENTS:
                self._rooms.clear()
            self._rooms[client_id] = (time.monotonic() + _FRESH_SECONDS, room // _SHARE)
