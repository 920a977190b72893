"""From whatever somebody has in hand at 3 a.m. to the verifications that it may mean."""

from __future__ import annotations

import re
from uuid import UUID

from db import ids, outbox, plans
from db.errors import NotFound
from db.queries import load
from db.session import Database

_SQL = load("explain.sql")
_MESSAGE_ID = re.compile(r"<?(dlv_[0-9a-f]{32})@[^<>\s]+>?")
MOST = 20


def find(database: Database, text: str) -> list[UUID]:
    """The verifications, newest first, at most `MOST`. `text`: `ver_…`, `dlv_…`, a Message-ID of ours, a request's or
    correlation id, a provider's id of a mail, or an idempotency key. Raises NotFound, DatabaseUnavailable.
    """
    ours = _MESSAGE_ID.fullmatch(text)
    public_id = ours[1] if ours else text
    if ids.parse("ver", public_id) or ids.parse("dlv", public_id):
        return [outbox.find(database, public_id)]
    with database.transaction() as tx:
        plans.follow_indexes(tx)
        rows = tx.execute(_SQL["find_by_text"], {"text": text, "limit": MOST}).fetchall()
    if not rows:
        raise NotFound(
            "nothing is known by that; give the id of a verification, a delivery or a request, a Message-ID, a provider's id "
            "of the mail, or an idempotency key"
        )
    return [row["id"] for row in rows]
