"""Every Celery task. Thin: what they do is in `tasks.delivery` and `tasks.sweep`, and is safe to repeat or to lose."""

from __future__ import annotations

from tasks import sweep as sweeping
from tasks.celery_app import app
from tasks.runtime import courier


@app.task(name="countersign.deliver", ignore_result=True)
def deliver() -> None:
    """There may be work: one slot drains until nothing is due or its time slice ends."""
    courier().drain()


@app.task(name="countersign.sweep", ignore_result=True)
def sweep() -> None:
    """Turn time into state, once an interval, whoever sends it."""
    sweeping.run_once(courier(), trigger="beat")
