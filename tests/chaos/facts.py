"""What the ledger is opened on: the rows of a database that has come to rest, the mails that arrived, the client's book."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from db import ids
from db.delivery_state import CLOSING_OUTCOMES
from tests.chaos.book import Book
from tests.chaos.mailbox import Mail

Row = Mapping[str, Any]

# A gate that closes under a lease leaves no time behind. This notes it under the row's lock, as every hand-over is stamped
# under it: so the two instants are in the order of the commits.
_WITNESS = """
CREATE TABLE chaos_gates (delivery_id uuid PRIMARY KEY, at timestamptz NOT NULL);
CREATE FUNCTION chaos_note_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_gates VALUES (NEW.id, clock_timestamp()) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_note_gate AFTER UPDATE OF gate_reason ON email_outbox
FOR EACH ROW WHEN (OLD.gate_reason IS NULL AND NEW.gate_reason IS NOT NULL) EXECUTE FUNCTION chaos_note_gate();
"""
_TABLES = {
    "verifications": "SELECT v.*, a.external_id AS account FROM verifications v JOIN accounts a ON a.id = v.account_id",
    "deliveries": "SELECT * FROM email_outbox",
    "attempts": "SELECT * FROM delivery_attempts ORDER BY delivery_id, lease_token",
    "accounts": "SELECT * FROM accounts",
    "changes": "SELECT * FROM state_changes ORDER BY seq, id",
    "gates": "SELECT * FROM chaos_gates",
}


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings that the system ran with, and what the ledger forgives. Seconds."""

    lease: float
    evidence_window: float
    max_attempts: int
    min_token_life: float
    delivery_deadline: float
    replays: int = 1  # SMTP knows no key
    slack: float = 1.0  # between a byte's leaving and its arrival in the mailbox of a busy machine


@dataclass(frozen=True, slots=True)
class Pause:
    """A process that was frozen between two instants, in seconds since 1970, by its id."""

    pid: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Breach:
    """A guarantee that does not hold, of one delivery or of the whole."""

    guarantee: str
    text: str
    delivery_id: UUID | None = None

    def __str__(self) -> str:
        about = f" {ids.public('dlv', self.delivery_id)}" if self.delivery_id else ""
        return f"{self.guarantee}{about}: {self.text}"


@dataclass
class Facts:
    """What is known once everything has come to rest. Rows are dictionaries by column."""

    verifications: Sequence[Row]
    deliveries: Sequence[Row]
    attempts: Sequence[Row]
    accounts: Sequence[Row]
    changes: Sequence[Row]
    gates: Sequence[Row]
    mails: Sequence[Mail]
    book: Book
    terms: Terms
    pauses: Sequence[Pause] = ()

    @classmethod
    def read(
        cls, database_url: str, mails: Sequence[Mail], book: Book, terms: Terms, pauses: Sequence[Pause] = ()
    ) -> Facts:
        """Everything from one snapshot."""
        with psycopg.connect(database_url, row_factory=dict_row) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            rows: dict[str, Any] = {
                name: connection.execute(query).fetchall() for name, query in _TABLES.items()
            }
        return cls(**rows, mails=list(mails), book=book, terms=terms, pauses=pauses)

    def __post_init__(self) -> None:
        self.by_delivery = {row["id"]: row for row in self.deliveries}
        self.by_verification = {row["id"]: row for row in self.verifications}
        self.closed_at: dict[UUID, datetime] = {row["delivery_id"]: row["at"] for row in self.gates}
        self._attempts: dict[UUID, list[Row]] = defaultdict(list)
        for row in self.attempts:
            self._attempts[row["delivery_id"]].append(row)
        self._mails: dict[str, list[Mail]] = defaultdict(list)
        for mail in sorted(self.mails, key=lambda mail: mail.at):
            self._mails[mail.delivery_id].append(mail)

    def attempts_of(self, delivery_id: UUID) -> list[Row]:
        """Oldest first."""
        return self._attempts.get(delivery_id, [])

    def handed_over(self, delivery_id: UUID) -> list[Row]:
        """The attempts that may have sent something, oldest first."""
        return [row for row in self.attempts_of(delivery_id) if row["handed_over_at"]]

    def mails_of(self, delivery_id: UUID) -> list[Mail]:
        """In the order of their arrival, those included that a server threw away."""
        return self._mails.get(ids.public("dlv", delivery_id), [])

    def verification_of(self, delivery_id: UUID) -> Row:
        return self.by_verification[self.by_delivery[delivery_id]["verification_id"]]


def install_witness(database_url: str) -> None:
    """Have the database note when gates close. Once, before the load."""
    with psycopg.connect(database_url) as connection:
        connection.execute(_WITNESS)


def unsettled(database_url: str) -> int:
    """How many deliveries have not ended."""
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM email_outbox WHERE status IN ('pending', 'sending', 'unknown')"
        ).fetchone()
    return int(row[0]) if row else 0


def was_open(attempt: Row, at: datetime) -> bool:
    """Whether a provider might have had this attempt's mail at an instant, for all that was known then."""
    if not attempt["handed_over_at"] or attempt["handed_over_at"] > at:
        return False
    return attempt["outcome"] not in CLOSING_OUTCOMES or attempt["finished_at"] > at
