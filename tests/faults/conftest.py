"""Fixtures for tests that hurt the product's own processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.redis import Redis
from tests.support.cluster import Cluster
from tests.support.environment import environment
from tests.support.smtp_server import SmtpServer

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    """A Redis of this test's own, to be hurt."""
    with Redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def cluster(database_url: str, redis: Redis) -> Iterator[MakeCluster]:
    """`cluster(mail_server, LEASE_SECONDS="2", …)` -> processes on the fresh database."""
    with ExitStack() as stack:

        def start(mail: SmtpServer, **overrides: str) -> Cluster:
            mail_url = f"smtp://127.0.0.1:{mail.port}"
            made = Cluster(environment(database_url, redis.url(), mail_url, **overrides))
            return stack.enter_context(made)

        yield start
