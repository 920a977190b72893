"""`python -m tests.chaos.partitions FOLDER`, in a network of its own: web, two workers, PostgreSQL, Redis and mail on hosts
of their own, parted by a script and healed, under load. Prints what happened; exit 0 when every promise was kept.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
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
from dev.redis import Redis
from tests.chaos import ledger
from tests.chaos.book import Book
from tests.chaos.facts import Breach, Facts, install_witness, unsettled
from tests.chaos.hosts import Hosts
from tests.chaos.load import Load
from tests.chaos.mailbox import Mailbox, MoodyServer
from tests.chaos.supervisor import Part, Supervisor
from tests.chaos.world import SETTINGS, TERMS
from tests.support.cluster import ROOT, wait_for
from tests.support.environment import environment

HOSTS = ("web", "worker1", "worker2", "postgres", "redis", "mail")
_LEASE = TERMS.lease + 1.5  # seconds: whoever is cut off loses what it holds
_MOMENT = 5.0  # longer than any time-out
_REST_SECONDS = 60.0
_WEB_PORT = 5000


class _OnHosts(Supervisor):
    """Starts each process on its own host."""

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        super().__init__(folder)
        self._hosts = hosts

    def _start(self, part: Part) -> None:
        with self._hosts.inside("web" if part.name == "beat" else part.name):
            super()._start(part)


class Site:
    """`with Site(folder) as site`: everything runs on its host and answers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mailbox = folder, Mailbox()
        self._stack = ExitStack()

    def __enter__(self) -> Site:
        enter = self._stack.enter_context
        self.hosts = enter(Hosts(HOSTS))
        with self.hosts.inside("postgres"):
            self.postgres = enter(Postgres(self.folder / "postgres", settings={"listen_addresses": "*"}))
            self._let_in()
        with self.hosts.inside("redis"):
            self.redis = enter(Redis(self.folder / "redis", settings={"bind": "*"}))
        with self.hosts.inside("mail"):
            self.mail = MoodyServer("mail", self.mailbox, host=self.hosts.address("mail"))
            enter(self.mail)
        self.database_url = self._at("postgres", self.postgres.url())
        schema.upgrade(self.database_url)
        install_witness(self.database_url)
        database = Database(self.database_url, statement_timeout=4.0, size=1)
        self.api_key = clients.create(database, "host").key
        database.close()
        self.supervisor = enter(_OnHosts(self.folder, self.hosts))
        for name in ("web", "beat", "worker1", "worker2"):
            self.supervisor.keep(name, self._command(name), self._environment(name))
        wait_for(self._is_ready, "web to answer", 60)
        return self

    def __exit__(self, *_: object) -> None:
        self.hosts.heal()
        self._stack.close()

    @property
    def url(self) -> str:
        """Where the service is."""
        return f"http://{self.hosts.address('web')}:{_WEB_PORT}"

    def one(self, query: str) -> Mapping[str, int]:
        """What the database says, by column."""
        with psycopg.connect(self.database_url, row_factory=psycopg.rows.dict_row) as connection:
            row = connection.execute(query).fetchone()  # type: ignore[arg-type]
        assert row is not None
        return row

    def _at(self, host: str, url: str) -> str:
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{user}@{self.hosts.address(host)}:{parts.port}").geturl()

    def _let_in(self) -> None:
        with (self.postgres.data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
            rules.write("host all all 10.77.0.0/24 scram-sha-256\n")
        with psycopg.connect(self.postgres.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")

    def _command(self, name: str) -> str:
        command = read_procfile(ROOT / "Procfile")[name.rstrip("12")]
        return f"{command} --hostname {name}@%h" if name.startswith("worker") else command

    def _environment(self, name: str) -> Mapping[str, str]:
        mail_url = f"smtp://{self.hosts.address('mail')}:{self.mail.port}?label=mail&tls=none"
        redis_url = self._at("redis", self.redis.url())
        given = environment(self.database_url, redis_url, mail_url, **{**SETTINGS, "PUBLIC_URL": self.url})
        own = {"BEAT_SCHEDULE": str(self.folder / f"{name}-schedule"), "PORT": str(_WEB_PORT)}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, **given, **own, "PYTHONUNBUFFERED": "1", "PATH": path}

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


def _worker_that_believes_it_owns_a_lease(site: Site) -> None:
    """Cut off from the database with mails on their way: it sends what it was allowed to, and cannot tell anybody."""
    site.mail.mood = "slow"
    wait_for(
        lambda: site.one("SELECT count(*) AS n FROM email_outbox WHERE status = 'sending'")["n"],
        "mails on their way",
    )
    site.hosts.part("worker1", "postgres")
    site.mail.mood = "calm"


def _redis_is_gone(site: Site) -> None:
    for host in ("web", "worker1", "worker2"):
        site.hosts.part("redis", host)


def _postgres_is_deaf(site: Site) -> None:
    for host in ("web", "worker1", "worker2"):
        site.hosts.lose(host, "postgres")


# Who does not hear whom, for how many seconds; each is healed before the next.
SCRIPT: tuple[tuple[str, float, Callable[[Site], None]], ...] = (
    ("worker1 and postgres, with mails on their way", _LEASE, _worker_that_believes_it_owns_a_lease),
    ("postgres does not hear worker2", _LEASE, lambda site: site.hosts.lose("worker2", "postgres")),
    ("worker1 does not hear postgres", _LEASE, lambda site: site.hosts.lose("postgres", "worker1")),
    ("worker1 does not hear mail", _MOMENT, lambda site: site.hosts.lose("mail", "worker1")),
    ("web and postgres", _MOMENT, lambda site: site.hosts.part("web", "postgres")),
    ("redis and everybody", _MOMENT, _redis_is_gone),
    ("postgres hears nobody", _MOMENT, _postgres_is_deaf),
)


def play(site: Site, book: Book, say: Callable[[str], None]) -> list[Breach]:
    """Part and heal as the script says, under load; then the ledger."""
    load = Load([site.url], site.api_key, site.mailbox, book, seed=1)
    load.start()
    for what, seconds, cut in SCRIPT:
        began = time.monotonic()
        cut(site)
        _tend(site, began + seconds)
        site.hosts.heal()
        healed = time.time()
        wait_for(partial(_delivers, site, healed), f"a mail after: {what}", 30)
        say(f"{what}: cut for {seconds:g} s, next mail {time.time() - healed:.1f} s after it healed")
    load.stop()
    end = time.monotonic() + _REST_SECONDS
    while time.monotonic() < end and not (
        load.is_over and not unsettled(site.database_url) and _read(site, book)
    ):
        _tend(site, time.monotonic() + 0.2)
    load.finish(10)
    facts = Facts.read(site.database_url, site.mailbox.mails, book, TERMS)
    kept = len({mail.delivery_id for mail in facts.mails})
    say(
        f"{len(facts.verifications)} verifications, {len(facts.mails)} mails of {kept} deliveries, "
        f"{sum(row['stale'] for row in facts.attempts)} late results, "
        f"{sum(row['outcome'] == 'lost' for row in facts.attempts)} lost leases"
    )
    return [
        *ledger.check(facts),
        *(Breach("run", text) for text in (*site.supervisor.misbehaved, *load.errors)),
    ]


def _tend(site: Site, until: float) -> None:
    while time.monotonic() < until:
        site.supervisor.tend()
        time.sleep(0.05)


def _delivers(site: Site, since: float) -> bool:
    site.supervisor.tend()
    return any(mail.at > since for mail in site.mailbox.mails)


def _read(site: Site, book: Book) -> bool:
    return site.one("SELECT count(*) AS n FROM state_changes")["n"] == len(book.feed)


def main(folder: Path) -> int:
    """Run it, and say what was found."""
    book = Book(folder / "book.jsonl")
    with Site(folder) as site:
        breaches = play(site, book, lambda text: sys.stdout.write(f"{text}\n") and None)
    for breach in breaches:
        sys.stdout.write(f"{breach}\n")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
