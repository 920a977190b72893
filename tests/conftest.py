"""Fixtures: a real PostgreSQL, Redis and mail sink, and a database of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app import receipt_text
from db import receipts, schema
from db.errors import CountersignError
from db.session import Database
from dev.inbox import Inbox
from dev.postgres import Postgres
from dev.redis import Redis
from tests.factories import Factory
from tests.support.environment import TOKEN_KEYS

# What is read at import or once a process. These servers answer nobody: no test uses a developer's by mistake.
os.environ["REDIS_URL"] = "redis://127.0.0.1:1/0"
os.environ["DATABASE_URL"] = "postgresql://127.0.0.1:1/none"
os.environ["TOKEN_KEYS"] = TOKEN_KEYS

# A crash of a process loses nothing without fsync; only a crash of the machine would.
_FAST = {"fsync": "off"}
_numbers = count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One server a run, with the migrated database `template` to copy from."""
    folder = _open_folder(tmp_path_factory.mktemp("postgres"))
    with Postgres(folder, settings=_FAST) as server:
        server.create_database("migrated")
        schema.upgrade(server.url("migrated"))
        # For the URLs that tests build themselves and that drop the password (a proxy's).
        os.environ["PGPASSWORD"] = urlsplit(server.url()).password or ""
        yield server


@pytest.fixture
def database_url(postgres: Postgres) -> Iterator[str]:
    """A fresh, migrated database."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    yield postgres.create_database(name, template="migrated")
    postgres.drop_database(name)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Connections to the fresh database."""
    opened = Database(database_url, statement_timeout=4.0, size=24)
    yield opened
    opened.close()


@pytest.fixture
def make(database: Database) -> Factory:
    """Makes verifications and deliveries in any state."""
    return Factory(database)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """One Redis a run, for tests that do not hurt it."""
    with Redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    """A mail sink that can be asked what arrived."""
    sink = Inbox()
    sink.start()
    yield sink
    sink.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failing test shows the receipts of its verifications."""
    report = yield
    used = getattr(item, "funcargs", {}).get("database")
    if report.when == "call" and report.failed and isinstance(used, Database):
        report.sections.append(("receipts", _receipts(used)))
    return report


def _receipts(database: Database) -> str:
    try:
        with database.transaction() as tx:
            rows = tx.execute(
                "SELECT client_id, id FROM verifications ORDER BY created_at LIMIT 5"
            ).fetchall()
        found = [receipts.read_receipt(database, row["client_id"], row["id"]) for row in rows]
        return "\n\n".join(map(receipt_text.render, found))
    except CountersignError as error:
        return f"not readable: {error!r}"


def _open_folder(folder: Path) -> Path:
    """As root the server runs as another user, which must be able to pass through."""
    if os.getuid() == 0:
        for parent in (folder, *folder.parents):
            if parent.name.startswith("pytest-"):
                parent.chmod(0o711)
    return folder
