"""Time that jumps: the database's clock and the clock of local durations run ahead by as much as a test says.

The product's SQL is run as it stands. It calls `now()` and `clock_timestamp()` without naming a schema; a schema in front of
`pg_catalog` has functions of these names that answer the real time and what was added to it. Nobody's row is touched.
"""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from tasks import deadline

_MOVABLE = """
CREATE SCHEMA moved;
CREATE TABLE moved.clock (ahead interval NOT NULL);
INSERT INTO moved.clock VALUES (interval '0');
CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
    AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM moved.clock';
CREATE FUNCTION moved.now() RETURNS timestamptz STABLE LANGUAGE sql
    AS 'SELECT pg_catalog.now() + ahead FROM moved.clock';
"""
# A column's default keeps the function it was made with.
_DEFAULTS = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = 'public' AND column_default = 'clock_timestamp()'
"""


class Clock:
    """The time of one database and of this process's durations. `ahead` in seconds."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        self._connection = psycopg.connect(url, autocommit=True)
        self._make_movable()
        real = deadline.now
        monkeypatch.setattr(deadline, "now", lambda: real() + self.ahead)

    def close(self) -> None:
        self._connection.close()

    def move(self, seconds: float) -> None:
        """Let time pass, for everybody at once."""
        self._set(self.ahead + seconds)

    def reset(self) -> None:
        """Back to the real time, for another run."""
        self._set(0.0)

    def _set(self, ahead: float) -> None:
        self.ahead = ahead
        self._connection.execute("UPDATE moved.clock SET ahead = make_interval(secs => %s)", [ahead])

    def _make_movable(self) -> None:
        self._connection.execute(_MOVABLE)
        for table, column in self._connection.execute(_DEFAULTS).fetchall():
            statement = "ALTER TABLE {} ALTER COLUMN {} SET DEFAULT moved.clock_timestamp()"
            self._connection.execute(sql.SQL(statement).format(sql.Identifier(table), sql.Identifier(column)))
        name = sql.Identifier(self._connection.info.dbname)
        path = sql.SQL("ALTER DATABASE {} SET search_path = moved, pg_catalog, public")
        self._connection.execute(path.format(name))
