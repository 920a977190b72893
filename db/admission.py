"""Whether one more mail may be requested now: cooldown, backlog, and hourly limits by account, address, client and caller.

What guards a mailbox is counted from the verifications themselves, under the locks of account and address: exact, and given
back when the mail certainly never left. What guards the service is counted in buckets (`db.limits`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import psycopg

from db.backlog import Rooms
from db.config import CreateLimits
from db.errors import ClientBacklog, RateLimited, ResendCooldown
from db.limits import Bucket
from db.queries import load
from db.session import Row, Tx

_SQL = load("admission.sql")
_HOUR = 3600.0
_rooms = Rooms()
Cursor = psycopg.Cursor[Row]


@dataclass(frozen=True, slots=True)
class Asked:
    """Who wants a mail to whom."""

    client_id: UUID
    account_id: str
    purpose: str
    email_canonical: str


def buckets(limits: CreateLimits, client_id: UUID, caller: bytes) -> tuple[Bucket, ...]:
    """What one request adds to. `caller` is a digest of where it comes from; another client's requests from there, behind one
    egress, are none of this one's.
    """
    return (
        Bucket("create_by_client", client_id.bytes, limits.client),
        Bucket("create_by_caller", hashlib.sha256(client_id.bytes + caller).digest(), limits.caller),
    )


def ask(tx: Tx, asked: Asked, limits: CreateLimits) -> Callable[[], None]:
    """Send the questions; the caller holds the account's lock, and the address' is taken here.

    They travel with what the caller sends besides. The function that this answers reads their answers; it raises
    ResendCooldown, ClientBacklog or RateLimited.
    """
    names = {
        "client_id": asked.client_id,
        "external_id": asked.account_id,
        "purpose": asked.purpose,
        "email_canonical": asked.email_canonical,
        "seconds": max(limits.cooldown, _HOUR if limits.account else 0.0),
        "max_waiting": limits.max_waiting,
        "account_limit": limits.account,
        "address_limit": limits.address,
    }
    checks: list[Callable[[], None]] = []
    if limits.address:
        tx.execute(_SQL["lock_address"], names)
    if limits.cooldown or limits.account:
        recent = tx.execute(_SQL["read_recent_of_account"], names)
        checks.append(partial(_check_account, recent, limits))
    if limits.max_waiting and not _rooms.take(asked.client_id):
        unfinished = tx.execute(_SQL["count_unfinished"], names)
        checks.append(partial(_check_backlog, unfinished, asked.client_id, limits.max_waiting))
    if limits.address:
        checks.append(partial(_check_address, tx.execute(_SQL["find_last_of_address"], names)))

    def check() -> None:
        for one in checks:
            one()

    return check


def _check_account(recent: Cursor, limits: CreateLimits) -> None:
    rows = recent.fetchall()
    alike = next((row for row in rows if row["is_alike"] and row["age"] < limits.cooldown), None)
    if alike is not None:
        # The link in that mail is dead if another address was asked for since: then the other mail is the one to look for.
        live = next((row for row in rows if row["is_live"]), alike)
        raise ResendCooldown(live["id"], _whole(limits.cooldown - alike["age"]))
    of_the_hour = [row["age"] for row in rows if row["age"] < _HOUR]
    if 0 < limits.account <= len(of_the_hour):
        raise RateLimited("create_by_account", _whole(_HOUR - of_the_hour[limits.account - 1]))


def _check_backlog(unfinished: Cursor, client_id: UUID, max_waiting: int) -> None:
    row = unfinished.fetchone()
    room = max_waiting - (row["count"] if row else 0)
    if room <= 0:
        raise ClientBacklog
    _rooms.found(client_id, room - 1)


def _check_address(last: Cursor) -> None:
    if (row := last.fetchone()) is not None:
        raise RateLimited("create_by_address", _whole(_HOUR - row["age"]))


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))
