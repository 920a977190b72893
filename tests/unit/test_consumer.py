"""A worker outlives its broker, whatever its clean-up raises."""

from __future__ import annotations

from typing import Any

import celery_config
from tasks.celery_app import app
from tasks.consumer import SteadyConsumer


class HalfClosed:
    """A connection whose transport has let go of its client, as kombu's is between `collect` and `close`."""

    transport = None

    def collect(self, socket_timeout: float) -> None:
        raise ConnectionError("refused")

    def close(self) -> None:
        raise AttributeError("'NoneType' object has no attribute 'hostname'")

    connection_errors = channel_errors = (ConnectionError,)


def test_a_lost_connection_that_cannot_be_put_away_does_not_end_the_worker() -> None:
    consumer: Any = SteadyConsumer.__new__(SteadyConsumer)
    consumer.app, consumer.connection = app, HalfClosed()
    consumer.on_connection_error_after_connected(ConnectionError("lost"))
    assert consumer.connection is None, "the next one is made anew"


def test_workers_use_it() -> None:
    assert app.conf.worker_consumer == celery_config.worker_consumer == "tasks.consumer:SteadyConsumer"
