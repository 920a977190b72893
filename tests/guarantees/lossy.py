"""A database whose answer to COMMIT can get lost, and that tells somebody of every commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from db.errors import CommitUnknown
from db.session import Database, DeadlineConnection

# What becomes of a COMMIT: it is answered; it happens and nobody hears of it; it never happens and nobody hears of it.
Commit = Literal["answered", "unheard", "lost"]


class _Lost(Exception):
    """Rolls the transaction back."""


class LossyDatabase(Database):
    """`next_commit` is what becomes of the next one; `committed` is called after each that happened and may have changed
    something.
    """

    next_commit: Commit = "answered"
    committed: Callable[[], None] = staticmethod(lambda: None)

    @contextmanager
    def transaction(self) -> Iterator[DeadlineConnection]:
        try:
            with super().transaction() as tx:
                yield tx
                wrote = tx.execute("SELECT pg_current_xact_id_if_assigned() IS NOT NULL AS wrote")
                # Whoever reads its answers only after the commit has asked by then all the same.
                fate, self.next_commit = self.next_commit, "answered"
                if fate == "lost":
                    raise _Lost
        except _Lost:
            raise CommitUnknown("the connection was cut before the COMMIT arrived") from None
        answer = wrote.fetchone()
        if answer is not None and answer["wrote"]:
            self.committed()
        if fate == "unheard":
            raise CommitUnknown("the connection was cut before the answer arrived")
