"""The product's logging in this process, for as long as a test looks at it."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from db import logs


@contextmanager
def logging_as(log_format: str) -> Iterator[None]:
    """Log to stderr as a process of ours does. Within a test's body: pytest replaces stderr between set-up and call."""
    root = logging.getLogger()
    level, hook, thread_hook = root.level, sys.excepthook, threading.excepthook
    logs.configure(log_format)
    ours = root.handlers[:]
    try:
        yield
    finally:
        root.handlers[:] = [handler for handler in root.handlers if handler not in ours]
        root.setLevel(level)
        sys.excepthook, threading.excepthook = hook, thread_hook
        logging.captureWarnings(False)
        structlog.reset_defaults()
