"""The Celery application: `celery -A tasks.celery_app worker|beat|flower`."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from celery.signals import setup_logging

from db import logs
from db.config import log_format
from tasks.worker import SweepTimer

app = Celery("countersign", include=["tasks.jobs"])
app.config_from_object("celery_config")
app.steps["worker"].add(SweepTimer)


# A line for each kick and each sweep, which say nothing: what a delivery came to is logged by itself.
_CHATTY = ("celery.worker.strategy", "celery.app.trace", "celery.beat")


@setup_logging.connect(weak=False)
def _configure_logs(**_: Any) -> None:
    """Celery's own set-up would log unredacted and unstructured."""
    logs.configure(log_format())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
