"""Connections kept open between messages."""

from __future__ import annotations

import os
import threading
from typing import Final

from tasks.deadline import now
from tasks.providers.smtp_dialogue import Dialogue

# Servers hang up after minutes, firewalls forget without a word. A kick's neighbours come within
# milliseconds.
_MAX_IDLE_SECONDS: Final = 20.0
# Servers count, and some refuse beyond a limit.
_MAX_MESSAGES: Final = 100
# More than a worker has slots is never in use at once.
_MAX_CONNECTIONS: Final = 32


class IdleConnections:
    """A stack of idle connections, used from many threads; the last one used is the likeliest to be alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._stack: list[Dialogue] = []

    def take(self) -> Dialogue | None:
        """A connection whose server is still there, as far as this side can see."""
        while (dialogue := self._pop()) is not None:
            if now() - dialogue.idle_since > _MAX_IDLE_SECONDS:
                dialogue.leave()
            elif dialogue.silent():
                return dialogue
            else:
                dialogue.reset()
        return None

    def put(self, dialogue: Dialogue) -> None:
        """Keep a connection on which nothing is under way."""
        dialogue.idle_since = now()
        with self._lock:
            keep = dialogue.messages < _MAX_MESSAGES and len(self._stack) < _MAX_CONNECTIONS
            if keep:
                self._stack.append(dialogue)
        if not keep:
            dialogue.leave()

    def close(self) -> None:
        """Take leave of all."""
        while (dialogue := self._pop()) is not None:
            dialogue.leave()

    def _pop(self) -> Dialogue | None:
        if self._pid != os.getpid():  # forked: those connections are the parent's conversations
            self._pid, self._lock, self._stack = os.getpid(), threading.Lock(), []
        with self._lock:
            return self._stack.pop() if self._stack else None
