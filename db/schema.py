"""Migrations as functions: where the schema is, where it should be, and how to get there."""

from __future__ import annotations

from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from db.session import Database

_MIGRATIONS = Path(__file__).parent.parent / "migrations"


def alembic_config(url: str) -> Config:
    """Alembic's configuration for the database at a libpq `url`."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["url"] = url.replace("postgresql://", "postgresql+psycopg://", 1)
    return config


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the schema to `revision`; does nothing when it is there. One migrator at a time."""
    command.upgrade(alembic_config(url), revision)


def downgrade(url: str, revision: str) -> None:
    """Take the schema back to `revision` (`base` empties it)."""
    command.downgrade(alembic_config(url), revision)


def head() -> str:
    """The revision this release was written for."""
    newest = ScriptDirectory(str(_MIGRATIONS)).get_current_head()
    assert newest is not None, "migrations/versions is empty"
    return newest


def current(database: Database) -> str | None:
    """The database's revision; None when it was never migrated. Raises DatabaseUnavailable."""
    try:
        with database.transaction() as tx:
            row = tx.execute("SELECT version_num FROM alembic_version").fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    return str(row["version_num"]) if row else None


def is_usable(database: Database) -> bool:
    """Whether this release can run on the database's schema.

    Its own revision is; so is one it does not know: a newer release went first (expand/contract). An older one is not.
    Raises DatabaseUnavailable.
    """
    revision = current(database)
    known = {script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()}
    return revision is not None and (revision == head() or revision not in known)
