"""What listens to the broker, and outlives it."""

from __future__ import annotations

from celery.worker.consumer import Consumer

from db.logs import get_logger

log = get_logger(__name__)


class SteadyConsumer(Consumer):
    """Goes on when a lost connection cannot be put away in good order.

    While it cleans up, kombu gives unacknowledged messages back over the very connection that was lost. If that fails
    half-way, closing it raises an AttributeError (kombu 5.7: the transport has let go of its client), which Celery takes for
    the end of the worker. The messages are kicks, which may be lost; the connection is made anew either way.
    """

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Put the lost connection away; the caller connects again."""
        try:
            super().on_connection_error_after_connected(exc)
        except Exception as error:
            log.warning("broker_cleanup_failed", reason=type(error).__name__)
