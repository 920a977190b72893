"""The whole system on one machine: two of each process, and a link between every two parts."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg

from db import clients, schema
from db.session import Database
from dev.children import read_procfile
from dev.postgres import Postgres
from dev.processes import free_port
from dev.redis import Redis
from tests.chaos.facts import Terms, install_witness
from tests.chaos.mailbox import Mailbox, MoodyServer
from tests.chaos.proxy import Link, Network
from tests.chaos.schedule import LINKS, MAIL_SERVERS, PROCESSES
from tests.chaos.supervisor import Supervisor
from tests.support.cluster import ROOT, wait_for
from tests.support.environment import TOKEN_KEYS, environment

# Short, so that two minutes see many leases, retries and evidence windows.
SETTINGS = {
    "LEASE_SECONDS": "8",
    "LEASE_MARGIN_SECONDS": "1",
    "SEND_DEADLINE_SECONDS": "3",
    "STATEMENT_TIMEOUT_SECONDS": "1.5",
    "RETRY_BACKOFF_SECONDS": "0.5,1,2",
    "MAX_ATTEMPTS": "6",
    "EVIDENCE_WINDOW_SECONDS": "10",
    "DELIVERY_DEADLINE_SECONDS": "30",
    "MIN_TOKEN_LIFE_SECONDS": "2",
    "SWEEP_INTERVAL_SECONDS": "1",
    "WORKER_SLOTS": "6",
    "WEB_CONCURRENCY": "1",
    "RESEND_COOLDOWN_SECONDS": "0",
    "CREATE_LIMIT": "0",
    "CONSUME_LIMIT": "100000",
}
TERMS = Terms(lease=8.0, evidence_window=10.0, max_attempts=6, min_token_life=2.0, delivery_deadline=30.0)
_READY_SECONDS = 60.0


class World:
    """`with World(folder) as world`: everything runs and answers."""

    def __init__(self, folder: Path, *, sabotage: str = "") -> None:
        """`sabotage`: what workers are left without (tests.chaos.sabotage)."""
        self.folder, self._sabotage = folder, sabotage
        self.mailbox = Mailbox()
        self.mail = {name: MoodyServer(name, self.mailbox) for name in MAIL_SERVERS}
        self.network = Network()
        self.links: dict[str, Link] = {}
        self._stack = ExitStack()

    def __enter__(self) -> World:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        enter = self._stack.enter_context
        self.postgres = enter(Postgres(self.folder / "postgres"))
        self.redis = enter(Redis(self.folder / "redis"))
        for server in self.mail.values():
            enter(server)
        enter(self.network)
        self.database_url = self.postgres.url()
        schema.upgrade(self.database_url)
        install_witness(self.database_url)
        self._make_client()
        self.web_ports = {name: free_port() for name in ("web1", "web2")}
        for name in LINKS:
            self.links[name] = self._link(name)
        self.supervisor = enter(Supervisor(self.folder))
        for name in PROCESSES:
            self.supervisor.keep(name, self._command(name), self._environment(name))
        for name in self.web_ports:
            wait_for(partial(self.is_ready, name), f"{name} to answer", _READY_SECONDS)

    def _make_client(self) -> None:
        database = Database(self.database_url, statement_timeout=4.0, size=1)
        self.api_key = clients.create(database, "host").key
        database.close()

    def _link(self, name: str) -> Link:
        far = name.partition("-")[2]
        if far in self.mail:
            return self.network.link(self.mail[far].port, drops=True)
        ports = {"postgres": self.postgres.port, "redis": self.redis.port, **self.web_ports}
        return self.network.link(ports[far])

    def url(self, web: str) -> str:
        """Where clients reach a web process: through its link."""
        return f"http://127.0.0.1:{self.links[f'client-{web}'].port}"

    def is_ready(self, web: str) -> bool:
        """Whether a web process answers that it can serve."""
        try:
            return httpx.get(f"{self.url(web)}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def _command(self, name: str) -> str:
        kind = name.rstrip("12")
        command = read_procfile(ROOT / "Procfile")[kind].replace("0.0.0.0", "127.0.0.1")
        if kind != "worker":
            return command
        if self._sabotage:
            command = command.replace("celery", f"python -m tests.chaos.sabotage {self._sabotage}", 1)
        return f"{command} --hostname {name}@%h"

    def _environment(self, name: str) -> dict[str, str]:
        def through(url: str, link: str) -> str:
            parts = urlsplit(url)
            port = self.links[link].port if link in self.links else parts.port
            user = parts.netloc.rpartition("@")[0]
            return parts._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()

        mail_urls = ",".join(
            f"smtp://127.0.0.1:{self.links[f'{name}-{mail}'].port}?label={mail}"
            for mail in (MAIL_SERVERS[::-1] if name.endswith("2") else MAIL_SERVERS)  # each has its favourite
            if f"{name}-{mail}" in self.links
        )
        given = environment(
            through(self.database_url, f"{name}-postgres"),
            through(self.redis.url(), f"{name}-redis"),
            mail_urls or "smtp://127.0.0.1:1",
            **{**SETTINGS, "PUBLIC_URL": self.url("web1")},
        )
        schedule = {"BEAT_SCHEDULE": str(self.folder / f"{name}-schedule"), "PYTHONUNBUFFERED": "1"}
        port = {"PORT": str(self.web_ports[name])} if name in self.web_ports else {}
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return {**os.environ, **given, **schedule, **port, **path}

    def secrets(self) -> list[str]:
        """What no process may write."""
        urls = (self.database_url, self.redis.url())
        return [self.api_key, TOKEN_KEYS.partition(":")[2], *(urlsplit(url).password or "" for url in urls)]

    def sql(self, *statements: str) -> None:
        """As a superuser, past every link; each statement by itself."""
        options = "-c default_transaction_read_only=off"
        with psycopg.connect(
            self.database_url, autocommit=True, connect_timeout=5, options=options
        ) as connection:
            for statement in statements:
                connection.execute(statement)
