"""The whole system: web, worker, beat as processes; PostgreSQL, Redis, inbox; a client with a key."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from celery import Celery
from pytest_celery import CeleryBrokerCluster, CeleryTestSetup, CeleryWorkerCluster

from dev.inbox import Inbox
from dev.processes import free_port
from dev.redis import Redis
from tests.support.celery_nodes import Broker, RedisProcess, Worker, WorkerProcess
from tests.support.cluster import ROOT, Cluster, wait_for
from tests.support.environment import environment

Api = httpx.Client


class System:
    """What a test needs of a running system."""

    def __init__(self, cluster: Cluster, inbox: Inbox, port: int) -> None:
        self.cluster, self.inbox = cluster, inbox
        self.url = f"http://127.0.0.1:{port}"
        self.key = str(self.command("clients", "create", "host")["api_key"])
        self.api = Api(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=10)

    def command(self, *arguments: str) -> dict[str, Any]:
        """Run `flask --app app … --json`; its data."""
        answer = subprocess.run(
            ["flask", "--app", "app", *arguments, "--json"],
            cwd=ROOT,
            env=self.cluster.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert answer.returncode == 0, answer.stderr
        read: dict[str, Any] = json.loads(answer.stdout)
        return read

    def request(self, key: str | None = None, **body: Any) -> httpx.Response:
        """`POST /v1/verifications`."""
        headers = {"Idempotency-Key": key} if key else {}
        asked = {"account_id": "acc_1", "email": "person@example.com", **body}
        return self.api.post("/v1/verifications", json=asked, headers=headers)

    def mail(self, delivery_id: str) -> Any:
        """The mail of a delivery, once it is there."""
        return wait_for(lambda: self.inbox.messages(delivery_id=delivery_id), f"the mail of {delivery_id}")[0]

    def token(self, delivery_id: str) -> str:
        """The token in a delivery's mail."""
        text = self.mail(delivery_id)["text"]
        return text.split("/verify#")[1].split()[0]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with Redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def processes(database_url: str, redis: Redis, inbox: Inbox) -> Iterator[Cluster]:
    port = free_port()
    given = environment(
        database_url, redis.url(), inbox.smtp_url, PUBLIC_URL=f"http://127.0.0.1:{port}", PORT=str(port)
    )
    with Cluster(given) as cluster:
        yield cluster


@pytest.fixture
def celery_broker_cluster(redis: Redis) -> CeleryBrokerCluster:
    """pytest-celery's broker: a Redis process."""
    return CeleryBrokerCluster(Broker(RedisProcess(redis)))


@pytest.fixture
def celery_backend_cluster() -> None:
    """None: results are rows in PostgreSQL."""


@pytest.fixture
def celery_worker_cluster(processes: Cluster, celery_broker_cluster: object) -> CeleryWorkerCluster:
    """pytest-celery's workers: one process of the Procfile."""
    return CeleryWorkerCluster(Worker(WorkerProcess(processes, "worker"), Celery("test")))


@pytest.fixture
def system(processes: Cluster, inbox: Inbox, celery_setup: CeleryTestSetup) -> System:
    """Web, beat and the workers of `celery_setup`, answering."""
    processes.start("web", WEB_CONCURRENCY="2")
    processes.start("beat")
    running = System(processes, inbox, int(processes.environment["PORT"]))
    wait_for(lambda: _answers(running.url), "the web process")
    return running


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
