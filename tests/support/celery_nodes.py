"""pytest-celery's nodes on plain processes: what it takes for containers are our own worker and a real Redis."""

from __future__ import annotations

import os
import signal as signals

from pytest_celery import CeleryTestBroker, CeleryTestWorker

from dev.children import Child
from dev.redis import Redis
from tests.support.cluster import Cluster, wait_for


class RedisProcess:
    """A Redis server where pytest-celery expects a container."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.name = self.id = "redis"

    @property
    def status(self) -> str:
        return "running" if self._redis.is_running() else "exited"

    @property
    def celeryconfig(self) -> dict[str, str]:
        return {"url": self._redis.url(), "host_url": self._redis.url()}

    def ready(self) -> bool:
        return self._redis.is_running()

    def logs(self) -> str:
        return self._redis.log.read_text(encoding="utf-8", errors="replace")

    def kill(self, signal: str | int = "SIGKILL") -> None:
        self._redis.stop(_number(signal))

    def restart(self, timeout: float = 10) -> None:
        self._redis.stop()
        self._redis.start()

    def reload(self) -> None:
        """The state is asked each time."""

    def teardown(self) -> None:
        """The fixture that made it stops it."""


class WorkerProcess:
    """One of the Procfile's workers where pytest-celery expects a container."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.name = self.id = name
        self._child: Child = cluster.start("worker", name)

    @property
    def status(self) -> str:
        return "running" if self._child.returncode() is None else "exited"

    def ready(self) -> bool:
        wait_for(lambda: " ready." in self.logs(), f"{self.name} to be ready")
        return True

    def logs(self) -> str:
        return self._cluster.output(self.name)

    def kill(self, signal: str | int = "SIGKILL") -> None:
        os.kill(self._child.pid, _number(signal))
        wait_for(lambda: self.status == "exited", f"{self.name} to end")

    def restart(self, timeout: float = 10) -> None:
        self._child.stop(seconds=timeout)
        self._child = self._cluster.start("worker", self.name)

    def reload(self) -> None:
        """The state is asked each time."""

    def teardown(self) -> None:
        """The cluster stops it."""

    def worker_name(self) -> str:
        return self.name

    def worker_queue(self) -> str:
        return "kicks"

    def log_level(self) -> str:
        return "INFO"

    def version(self) -> str:
        import celery

        return str(celery.__version__)


class Broker(CeleryTestBroker):
    """A broker node over a process."""


class Worker(CeleryTestWorker):
    """A worker node over a process."""

    def hostname(self) -> str:
        return f"{self.worker_name}@{os.uname().nodename}"


def _number(signal: str | int) -> int:
    return int(signals.Signals[signal]) if isinstance(signal, str) else signal
