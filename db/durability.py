"""Whether PostgreSQL keeps what it acknowledges: what every guarantee stands on."""

from __future__ import annotations

from db.session import Database

# Each of these switched off may lose a committed row with the machine: a mail sent and forgotten, hence sent again.
_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")


def switched_off(database: Database) -> list[str]:
    """The durability settings that are off for our sessions; empty is good. Raises DatabaseUnavailable."""
    with database.transaction() as tx:
        rows = tx.execute(
            "SELECT name FROM pg_settings WHERE name = ANY (%s) AND setting = 'off' ORDER BY name",
            [list(_SETTINGS)],
        ).fetchall()
    return [row["name"] for row in rows]
