"""Beat's scheduler: in memory, and at most one waiting sweep."""

from __future__ import annotations

from typing import Any

from celery.beat import ScheduleEntry, Scheduler

from tasks.kicker import waiting


class OneWaitingSweep(Scheduler):
    """Sends no second sweep while one waits: with the workers down, sweeps would pile up for nothing."""

    def apply_async(
        self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **options: Any
    ) -> Any:
        """Publish `entry`, or only note its time."""
        if waiting("sweeps") > 0:
            return self.reserve(entry) if advance else None
        return super().apply_async(entry, producer=producer, advance=advance, **options)
