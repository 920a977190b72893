"""Kicks: messages without content that say "there may be work".

A request only sets a flag; one background thread a process talks to the broker. Losing a kick costs latency, never a mail.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from kombu.exceptions import ChannelError, OperationalError

from db.logs import get_logger

log = get_logger(__name__)

_ENOUGH_WAITING = 4  # each starts a slot that drains; one more would find nothing
_REST_SECONDS = 5.0  # after a broker error


class Kicker:
    """Coalesces kicks: any number of `kick()` while one is being sent become one more.

    `send` publishes one kick; `waiting` answers how many lie in the queue. Both may raise anything.
    """

    def __init__(
        self, send: Callable[[], None], waiting: Callable[[], int], *, rest: float = _REST_SECONDS
    ) -> None:
        self._send = send
        self._waiting = waiting
        self._rest = rest
        self._wanted = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def kick(self) -> None:
        """Ask for a kick. Never blocks, never raises; call it after the commit."""
        self._wanted.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="kicker", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        rested = threading.Event()  # never set: a pause that no signal handler or patch cuts short
        while self._wanted.wait():
            self._wanted.clear()
            if not self.run_once():
                rested.wait(self._rest)
                self._wanted.set()

    def run_once(self) -> bool:
        """Send one kick unless enough are waiting; False when the broker did not take it."""
        try:
            # The queue's length is asked after the commit: what waits now will find the new row.
            if self._waiting() < _ENOUGH_WAITING:
                self._send()
        except Exception as error:
            log.warning("kick_failed", reason=type(error).__name__)
            return False
        return True


def waiting(queue: str) -> int:
    """How many messages lie in `queue` at the broker; 0 when it cannot say."""
    try:
        return _length(queue)
    except (OperationalError, OSError):
        return 0


def _length(queue: str) -> int:
    from tasks.celery_app import app  # noqa: PLC0415 (the application's bootstep uses this module)

    with app.producer_or_acquire() as producer:
        channel: Any = producer.channel
        try:
            declared = channel.queue_declare(queue, passive=True)
        except ChannelError:  # Redis keeps no empty list
            return 0
    return int(declared.message_count)


def _publish() -> None:
    from tasks.celery_app import app  # noqa: PLC0415

    app.send_task("countersign.deliver", queue="kicks", ignore_result=True, retry=False)


_kicker = Kicker(_publish, lambda: _length("kicks"))


def kick() -> None:
    """Ask for a kick from this process. Never blocks, never raises."""
    _kicker.kick()


def _after_fork() -> None:
    """A thread does not survive a fork; its flag and locks must not either."""
    global _kicker  # noqa: PLW0603
    _kicker = Kicker(_publish, lambda: _length("kicks"))


os.register_at_fork(after_in_child=_after_fork)
