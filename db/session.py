"""Connections and transactions: short, with a time-out on both sides, made after fork.

`Database.transaction()` is the only way in. It yields a psycopg connection in pipeline mode: BEGIN and the local
time-outs travel with the first statement, so they cost no round trip.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, cast

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import event, exc, pool

from db.config import DatabaseSettings, settings
from db.errors import CommitUnknown, DatabaseUnavailable

Row = dict[str, Any]
Tx = psycopg.Connection[Row]

# SET LOCAL through set_config: start-up options and session settings break behind PgBouncer in transaction mode.
_LOCAL_TIMEOUTS = """
SELECT set_config('statement_timeout', %(statement)s, true),
       set_config('lock_timeout', %(lock)s, true),
       set_config('idle_in_transaction_session_timeout', %(idle)s, true)
"""
_CONNECT_TIMEOUT_SECONDS = 3
_GRACE_SECONDS = 1.0  # the server gives up first, so that the client sees an error and not a dead socket


class SyncedCursor(psycopg.Cursor[Row]):
    """Reads answers behind a Sync, which ends the server's turn.

    psycopg would send a mere Flush in pipeline mode, after which the backend counts as active, so that
    `idle_in_transaction_session_timeout` never frees the locks of a client that was frozen in mid-transaction.
    """

    def fetchone(self) -> Row | None:
        self._sync()
        return super().fetchone()

    def fetchall(self) -> list[Row]:
        self._sync()
        return super().fetchall()

    def __iter__(self) -> Iterator[Row]:  # type: ignore[override]
        self._sync()
        return super().__iter__()

    def _sync(self) -> None:
        connection = cast(DeadlineConnection, self.connection)
        if self.pgresult is None and connection.pipelined is not None:
            connection.pipelined.sync()


class DeadlineConnection(psycopg.Connection[Row]):
    """A connection that closes itself when the database has not answered by `deadline`.

    Server-side time-outs do not help against a frozen server or a network that drops packets.
    """

    deadline: float | None = None  # time.monotonic()
    pipelined: psycopg.Pipeline | None = None  # while a transaction is open

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        if timeout is None and self.deadline is not None:
            timeout = max(0.0, self.deadline - time.monotonic())
        try:
            return super().wait(gen, interval, timeout)
        except psycopg.OperationalError:
            if self.deadline is not None and time.monotonic() >= self.deadline:
                self.pgconn.finish()
            raise


class Database:
    """One pool of connections to one PostgreSQL.

    The pool is made at the first use, after fork; `size` bounds its connections.
    """

    def __init__(self, url: str, *, statement_timeout: float, size: int) -> None:
        self._url = url
        self._statement_timeout = statement_timeout
        self._pool = pool.QueuePool(
            cast(Any, self._connect),
            pool_size=size,
            max_overflow=0,
            timeout=statement_timeout,
            use_lifo=True,
        )
        event.listen(self._pool, "checkout", _refuse_dead_connection)
        self._patience = _Patience()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.dispose()

    @contextmanager
    def transaction(self) -> Iterator[DeadlineConnection]:
        """One short transaction, committed on leaving, rolled back on an exception.

        Raises DatabaseUnavailable when nothing was committed and CommitUnknown when the answer to COMMIT was lost;
        other psycopg errors (constraint names) pass through.
        """
        pooled = self._check_out()
        connection = cast(DeadlineConnection, pooled.driver_connection)
        connection.deadline = time.monotonic() + self._statement_timeout + _GRACE_SECONDS
        committing = False
        try:
            with connection.pipeline() as connection.pipelined:
                connection.execute(_LOCAL_TIMEOUTS, self._timeouts())
                yield connection
                committing = True
                connection.commit()
            self._patience.answered()
        except _GONE as error:
            if time.monotonic() >= connection.deadline:
                self._patience.waited_in_vain()
            # An error that the server itself reported, on a connection that lives, means that nothing was committed.
            unknown = committing and (connection.closed or error.sqlstate is None)
            # Whatever was wrong may be wrong with this connection for good: a read-only phase outlives itself in it.
            pooled.invalidate()
            kind = CommitUnknown if unknown else DatabaseUnavailable
            raise kind(type(error).__name__) from error
        finally:
            with suppress(psycopg.Error):
                connection.rollback()
            connection.deadline = connection.pipelined = None
            pooled.close()

    def _check_out(self) -> pool.PoolProxiedConnection:
        if not self._patience.may_try():
            raise DatabaseUnavailable("it did not answer others just now")
        try:
            return self._pool.connect()
        except (psycopg.OperationalError, exc.SQLAlchemyError) as error:
            if isinstance(error, psycopg.errors.ConnectionTimeout):
                self._patience.waited_in_vain()
            raise DatabaseUnavailable(type(error).__name__) from error

    def _timeouts(self) -> dict[str, str]:
        milliseconds = max(1, int(self._statement_timeout * 1000))
        return {
            "statement": str(milliseconds),
            "lock": str(milliseconds // 2 + 1),
            "idle": str(milliseconds),
        }

    def _connect(self) -> DeadlineConnection:
        return DeadlineConnection.connect(
            self._url,
            row_factory=dict_row,
            cursor_factory=SyncedCursor,
            # Server-side prepared statements break behind poolers that do not know them.
            prepare_threshold=None,
            connect_timeout=_CONNECT_TIMEOUT_SECONDS,
            keepalives_idle=20,
            keepalives_interval=5,
            keepalives_count=3,
        )


class _Patience:
    """Spares others a wait that somebody had in vain: for a second they are refused at once, then one tries.

    Against a frozen server each thread of a process would wait out its time-outs while requests queue behind them.
    """

    _SECONDS = 1.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: float | None = None

    def may_try(self) -> bool:
        """Whether to ask the database now; whoever may, tries for all others."""
        with self._lock:
            now = time.monotonic()
            if self._until is None:
                return True
            if now < self._until:
                return False
            self._until = now + self._SECONDS
            return True

    def waited_in_vain(self) -> None:
        with self._lock:
            self._until = time.monotonic() + self._SECONDS

    def answered(self) -> None:
        if self._until is not None:
            with self._lock:
                self._until = None


# The server went away, was told to stop, turned read-only, or did not answer in time.
_GONE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)


def _refuse_dead_connection(connection: psycopg.Connection[Any], _record: object, _proxy: object) -> None:
    """An idle connection that can be read has been closed by the server: take another. Costs no round trip."""
    if not connection.closed:
        poll = select.poll()  # select() cannot watch descriptors above 1023
        poll.register(connection.fileno(), select.POLLIN)
        if not poll.poll(0):
            return
    raise exc.DisconnectionError


@cache
def database(size: int = 8) -> Database:
    """This process's database, from the environment, with at most `size` connections."""
    read: DatabaseSettings = settings()
    return Database(read.database_url, statement_timeout=read.statement_timeout, size=size)


# A socket shared over fork answers the wrong process.
os.register_at_fork(after_in_child=database.cache_clear)
