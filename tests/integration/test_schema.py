"""The schema: models and migrations agree, migrations go both ways, impossible rows are refused."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import psycopg
import pytest
from alembic import command
from sqlalchemy.exc import DBAPIError

from db import clients, durability, endings, schema
from db.delivery_state import ALLOWED_IN, REQUIRED_IN, State
from db.phases import CancelledBy
from db.session import Database
from dev.postgres import Postgres
from tests.factories import Factory
from tests.support.cluster import wait_for
from tests.support.courier import create
from tests.support.races import Later

VALUES = {
    "lease_owner": "'host:1:0'",
    "lease_until": "now()",
    "next_attempt_at": "now()",
    "open_provider": "'smtp/one.example.com', payload_digest = ''",
    "evidence": "'response'",
    "completed_at": "now()",
    "failure_category": "'config', failure_code = 'x'",
    "failure_code": "'x', failure_category = 'config'",
}
NULLS = {
    "open_provider": "NULL, payload_digest = NULL",
    "failure_category": "NULL, failure_code = NULL",
    "failure_code": "NULL, failure_category = NULL",
}


def test_models_and_migrations_agree(database_url: str) -> None:
    command.check(schema.alembic_config(database_url))


def test_migrations_go_up_down_and_up_again(postgres: Postgres) -> None:
    url = postgres.create_database("up_down_up")
    schema.upgrade(url)
    schema.downgrade(url, "base")
    with psycopg.connect(url) as connection:
        left = connection.execute(
            "SELECT (SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version')"
            " + (SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace)"
        ).fetchone()
    assert left == (0,)
    schema.upgrade(url)
    database = Database(url, statement_timeout=4.0, size=1)
    assert schema.current(database) == schema.head()
    database.close()
    postgres.drop_database("up_down_up")


def test_going_back_is_refused_while_test_mail_could_reach_people(postgres: Postgres) -> None:
    url = postgres.create_database("back_with_tests")
    schema.upgrade(url)
    database = Database(url, statement_timeout=4.0, size=2)
    owner = clients.create(database, "tests", is_test=True)
    waiting = create(database, owner.key)
    with pytest.raises(DBAPIError, match="test mail is waiting"):
        schema.downgrade(url, "0001")
    endings.cancel(database, None, waiting.id, by=CancelledBy.OPERATOR)
    with pytest.raises(DBAPIError, match="there are test clients"):
        schema.downgrade(url, "0001")
    clients.disable(database, "tests")
    assert schema.current(database) == schema.head(), "a refusal changes nothing"
    database.close()
    schema.downgrade(url, "0001")
    schema.upgrade(url)
    postgres.drop_database("back_with_tests")


def test_test_mail_that_a_provider_had_comes_back_as_such(postgres: Postgres) -> None:
    url = postgres.create_database("back_and_forth")
    schema.upgrade(url)
    database = Database(url, statement_timeout=4.0, size=2)
    create(database, clients.create(database, "tests", is_test=True).key)
    clients.disable(database, "tests")
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE email_outbox SET status = 'failed', provider = 'simulator', failure_category = 'recipient',"
            " failure_code = 'no_such_user', next_attempt_at = NULL, completed_at = now()"
        )
    database.close()
    schema.downgrade(url, "0001")
    schema.upgrade(url)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT route FROM email_outbox").fetchall() == [("test",)]
    postgres.drop_database("back_and_forth")


def test_a_second_migrator_waits_for_the_first_however_long_that_takes(postgres: Postgres) -> None:
    url = postgres.create_database("slow_migrator")
    with psycopg.connect(url) as first:
        first.execute("SELECT pg_advisory_xact_lock(%s)", [0x636F756E746572])
        second = Later(lambda: schema.upgrade(url))
        with psycopg.connect(url, autocommit=True) as look:
            longer = "wait_event = 'advisory' AND clock_timestamp() - query_start > interval '5.2 seconds'"
            query = f"SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND {longer}"
            wait_for(lambda: look.execute(query).fetchone(), "longer than it would wait for a table")  # type: ignore[call-overload]
        first.commit()
    second.result()
    postgres.drop_database("slow_migrator")


def test_migrators_that_start_together_take_turns(postgres: Postgres) -> None:
    url = postgres.create_database("together")
    program = "import sys; from db import schema; schema.upgrade(sys.argv[1])"
    migrators = [subprocess.Popen([sys.executable, "-c", program, url]) for _ in range(3)]
    assert [migrator.wait(timeout=60) for migrator in migrators] == [0, 0, 0]
    postgres.drop_database("together")


def test_an_empty_database_is_not_usable_and_a_newer_schema_is(
    postgres: Postgres, database: Database
) -> None:
    empty = Database(postgres.create_database("empty"), statement_timeout=4.0, size=1)
    assert not schema.is_usable(empty)
    empty.close()
    postgres.drop_database("empty")
    assert schema.is_usable(database)
    with database.transaction() as tx:
        tx.execute("UPDATE alembic_version SET version_num = '9999'")
    assert schema.is_usable(database), "a newer release migrated first"


@pytest.mark.parametrize("column", REQUIRED_IN)
@pytest.mark.parametrize("state", State)
def test_a_state_has_the_columns_it_needs_and_no_others(make: Factory, state: State, column: str) -> None:
    delivery_id = make.in_state(state)

    def refused(value: str) -> bool:
        try:
            with make.database.transaction() as tx:
                tx.execute(f"UPDATE email_outbox SET {column} = {value} WHERE id = %s", [delivery_id])  # type: ignore[arg-type]
        except psycopg.errors.CheckViolation:
            return True
        return False

    assert refused(NULLS.get(column, "NULL")) == (state in REQUIRED_IN[column])
    assert refused(VALUES[column]) == (state not in ALLOWED_IN[column])


@pytest.mark.parametrize(
    "change",
    [
        "status = 'sent'",
        "lease_token = -1",
        "send_before = 'epoch'",
        "gate_reason = 'cancelled'",
        "payload_digest = ''",
        "evidence = 'hope'",
    ],
)
def test_impossible_rows_are_refused(make: Factory, change: str) -> None:
    delivery_id = make.waiting().delivery_id
    with pytest.raises(psycopg.errors.CheckViolation):
        make.execute(f"UPDATE email_outbox SET {change} WHERE id = %s", delivery_id)


def test_a_verification_has_one_delivery_for_ever(make: Factory) -> None:
    made = make.waiting()
    with pytest.raises(psycopg.errors.UniqueViolation):
        make.execute(
            "INSERT INTO email_outbox (id, verification_id, next_attempt_at, send_before) VALUES (%s, %s, now(), now())",
            made.client_id,
            made.verification_id,
        )


def test_an_account_has_one_requested_verification_a_purpose(make: Factory) -> None:
    first, second = make.waiting(), make.waiting()
    with pytest.raises(psycopg.errors.UniqueViolation):
        make.execute(
            "UPDATE verifications SET account_id = %s WHERE id = %s", first.account_id, second.verification_id
        )


def test_a_database_that_may_forget_is_noticed(database: Database) -> None:
    assert "fsync" in durability.switched_off(database), "the tests' own server runs without"
    with database.transaction() as tx:
        tx.execute("SELECT set_config('synchronous_commit', 'off', false)")
    assert "synchronous_commit" in durability.switched_off(database)


def test_a_delivery_that_an_older_release_wrote_is_found_by_its_client(postgres: Postgres) -> None:
    url = postgres.create_database("older")
    schema.upgrade(url, "0002")
    with closing(Database(url, statement_timeout=4.0, size=1)) as database:
        make = Factory(database)
        finished = make.in_state(State.ACCEPTED)
        make.execute("UPDATE email_outbox SET client_id = NULL")
        schema.upgrade(url)
        assert make.row(finished)["client_id"] == make.client()
        made = make.waiting()
        make.execute("DELETE FROM email_outbox WHERE id = %s", made.delivery_id)
        make.execute(
            "INSERT INTO email_outbox (id, verification_id, next_attempt_at, send_before) VALUES (%s, %s, now(), now())",
            made.delivery_id,
            made.verification_id,
        )
        assert make.row(made.delivery_id)["client_id"] == make.client()
    postgres.drop_database("older")
