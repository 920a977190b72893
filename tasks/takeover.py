"""Sweeping and delivering without the broker."""

from __future__ import annotations

from threading import Thread

from db import sweep_runs
from tasks import sweep
from tasks.delivery import Courier


class Takeover:
    """Notices that sweeps stopped coming through the broker, and then does what they and kicks would do."""

    def __init__(self, courier: Courier) -> None:
        self._courier = courier
        self._threads: list[Thread] = []
        self.interval = courier.settings.sweep_interval

    def run_once(self) -> bool:
        """Sweep and drain if the broker has been silent for two intervals. Answers whether it had been."""
        silent = sweep_runs.seconds_since_beat(self._courier.database)
        if silent is not None and silent < 2 * self.interval:
            return False
        sweep.run_once(self._courier, trigger="timer")
        self._start_draining()
        return True

    def join(self) -> None:
        """Wait until the sends in flight have ended and are settled."""
        for thread in self._threads:
            thread.join()

    def _start_draining(self) -> None:
        """With as many threads as there are slots; tasks of a broker that comes back share the slots with them."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        while len(self._threads) < self._courier.slots.count and self._courier.finds_due_work():
            thread = Thread(target=self._drain, name="drain", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _drain(self) -> None:
        while self._courier.drain():
            pass
