"""Transactions on a database that misbehaves: every fault becomes DatabaseUnavailable, and passes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from db.errors import CommitUnknown, DatabaseUnavailable
from db.session import Database
from dev.postgres import Postgres
from tests.support.races import together

FROZEN_SECONDS = 2.0  # statement time-out 1 s and the grace


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    folder = tmp_path_factory.mktemp("own")
    for parent in (folder, *folder.parents):
        if parent.name.startswith("pytest-"):
            parent.chmod(0o711)
    with Postgres(folder) as server:
        yield server


def ask(database: Database) -> int:
    with database.transaction() as tx:
        row = tx.execute("SELECT 1 AS one").fetchone()
    assert row is not None
    return int(row["one"])


def write(database: Database) -> None:
    with database.transaction() as tx:
        tx.execute("INSERT INTO clients (id, name) VALUES (gen_random_uuid(), gen_random_uuid()::text)")


def terminate_others(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_idle_connections_that_the_server_closed_are_replaced_unnoticed(
    database: Database, database_url: str
) -> None:
    together(4, lambda _: ask(database))
    terminate_others(database_url)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            assert ask(database) == 1
            break
        except DatabaseUnavailable:  # the farewell has not arrived yet
            continue
    assert [ask(database) for _ in range(8)] == [1] * 8


def test_a_backend_that_dies_in_a_transaction_is_unavailability_and_then_all_is_well(
    database: Database, database_url: str
) -> None:
    with pytest.raises(DatabaseUnavailable), database.transaction() as tx:
        tx.execute("SELECT 1").fetchone()
        terminate_others(database_url)
        tx.execute("SELECT 1").fetchone()
    assert ask(database) == 1


def test_a_commit_without_an_answer_is_unknown(database: Database, database_url: str) -> None:
    with pytest.raises(CommitUnknown), database.transaction() as tx:
        tx.execute("SELECT 1").fetchone()
        terminate_others(database_url)
    assert ask(database) == 1


def test_a_read_only_phase_passes_with_its_end(
    database: Database, database_url: str, postgres: Postgres
) -> None:
    name = database_url.rpartition("/")[2]
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")  # type: ignore[arg-type]
        terminate_others(database_url)
        for _ in range(3):
            with pytest.raises(DatabaseUnavailable):
                write(database)
        connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")  # type: ignore[arg-type]
    write(database)


def test_a_client_frozen_in_a_transaction_does_not_hold_its_locks_for_ever(
    database: Database, database_url: str
) -> None:
    short = Database(database_url, statement_timeout=0.4, size=1)
    with pytest.raises(DatabaseUnavailable), short.transaction() as tx:
        tx.execute("SELECT seq FROM change_counter FOR UPDATE").fetchone()
        with database.transaction() as other:  # waits for the lock: nobody else would let go of it
            assert other.execute("SELECT seq FROM change_counter FOR UPDATE").fetchone() is not None
        tx.execute("SELECT 1").fetchone()
    assert ask(short) == 1
    short.close()


def test_a_statement_that_takes_too_long_is_ended_by_the_server(database_url: str) -> None:
    database = Database(database_url, statement_timeout=0.2, size=1)
    with pytest.raises(DatabaseUnavailable), database.transaction() as tx:
        tx.execute("SELECT pg_sleep(30)").fetchone()
    assert ask(database) == 1
    database.close()


def test_an_error_of_the_statement_passes_through_and_leaves_the_connection_good(database: Database) -> None:
    for _ in range(30):
        with pytest.raises(psycopg.errors.DivisionByZero), database.transaction() as tx:
            tx.execute("SELECT 1 / 0").fetchone()
    assert ask(database) == 1


def test_more_callers_than_connections_wait_their_turn(database_url: str) -> None:
    database = Database(database_url, statement_timeout=4.0, size=2)
    assert together(16, lambda _: ask(database)) == [1] * 16
    database.close()


def test_a_frozen_server_costs_few_a_wait_and_nobody_a_long_one(own_server: Postgres) -> None:
    database = Database(own_server.url(), statement_timeout=1.0, size=4)
    together(4, lambda _: ask(database))
    pids = [own_server.pid, *_children(own_server.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:

        def try_once(_: int) -> float:
            began = time.monotonic()
            with pytest.raises(DatabaseUnavailable):
                ask(database)
            return time.monotonic() - began

        first = together(4, try_once)
        assert max(first) < FROZEN_SECONDS + 3
        later = [try_once(0) for _ in range(20)]
        assert sorted(later)[10] < 0.1, "most are refused at once"
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    back = threading.Event()
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and not back.wait(0.05):
        try:
            ask(database)
            back.set()
        except DatabaseUnavailable:
            continue
    assert back.is_set()
    database.close()


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in text.split()]
