"""Runs migrations in one transaction, one migrator at a time.

The advisory lock and the time-outs belong to the transaction, so they work behind PgBouncer in transaction mode. A
migration that cannot get its locks in time fails and changes nothing, instead of queueing every query behind it.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine, pool, text

from db.models import metadata

_ONE_MIGRATOR = 0x636F756E746572  # "counter"
_LOCK_TIMEOUT = "5s"
_STATEMENT_TIMEOUT = "10min"


def _migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        connection.execute(
            text("SELECT set_config('statement_timeout', :all, true)"), {"all": _STATEMENT_TIMEOUT}
        )
        # Before the short time-out: the one in front may take a while.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ONE_MIGRATOR})
        connection.execute(text("SELECT set_config('lock_timeout', :lock, true)"), {"lock": _LOCK_TIMEOUT})
        context.run_migrations()


def _run() -> None:
    given = context.config.attributes.get("connection")
    if given is not None:
        _migrate(given)
        return
    engine = create_engine(
        context.config.attributes["url"],
        poolclass=pool.NullPool,
        connect_args={"prepare_threshold": None, "connect_timeout": 5},
    )
    with engine.connect() as connection:
        _migrate(connection)


_run()
