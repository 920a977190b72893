"""What a worker process does beside its tasks: stop without losing anything, and sweep by itself when the broker is gone."""

from __future__ import annotations

import threading
from typing import Any

from celery import bootsteps
from celery.signals import worker_init, worker_shutting_down

from db import durability
from db.errors import ConfigurationError, CountersignError
from db.logs import get_logger
from db.session import Database
from tasks.shutdown import SHUTDOWN
from tasks.takeover import Takeover

log = get_logger(__name__)


class SweepTimer(bootsteps.StartStopStep):
    """A daemon thread that takes over when no sweep has come through the broker for two intervals.

    Beat reaches workers through Redis only. The step needs the pool and nothing of the broker: without Redis the
    consumer never gets ready, and `worker_ready` never comes.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._stop = threading.Event()
        self._takeover: Takeover | None = None

    def start(self, parent: Any) -> None:
        """Start the thread, once the pool runs."""
        threading.Thread(target=self._run, name="sweep-timer", daemon=True).start()

    def close(self, parent: Any) -> None:
        """Shutdown begins; a remote one sends no signal, so the slots are told here as well."""
        _stop_sending()
        self._stop.set()

    def stop(self, parent: Any) -> None:
        """Wait for what the takeover is sending, as the pool does for what the tasks are."""
        self.close(parent)
        if self._takeover is not None:
            self._takeover.join()

    terminate = stop

    def _run(self) -> None:
        from tasks.runtime import courier  # noqa: PLC0415 (it imports the application, which imports this)

        takeover = self._takeover = Takeover(courier())
        checked = False
        while not self._stop.wait(takeover.interval):
            try:
                checked = checked or _check_durability(courier().database)
                takeover.run_once()
            except CountersignError as error:
                log.warning("timer_sweep_failed", reason=type(error).__name__)
            except Exception:
                log.exception("timer_sweep_raised", alert=True)


def _check_durability(database: Database) -> bool:
    """Once a process, at the first answer of the database: without durability no guarantee holds."""
    for setting in durability.switched_off(database):
        log.error("durability_off", variable=setting, alert=True)
    return True


@worker_init.connect(weak=False)
def _check_settings(**_: Any) -> None:
    """A worker with senseless settings ends here, before it takes a message, and says which variable it is."""
    from tasks.runtime import courier  # noqa: PLC0415

    try:
        courier()
    except ConfigurationError as error:
        log.error("settings_refused", reason=str(error))
        raise SystemExit(2) from None


@worker_shutting_down.connect(weak=False)
def _stop_sending(**_: Any) -> None:
    """No new claims or hand-overs. Runs inside a signal handler: sets a plain attribute, takes no lock, writes no log."""
    SHUTDOWN.requested = True
