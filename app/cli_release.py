"""`release`: the platform's release phase."""

from __future__ import annotations

import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import click

from app.cli_support import Command, answer, json_option, open_database, say
from db.config import connection

_GIT_SECONDS = 5


@click.command(cls=Command)
@json_option
def release(as_json: bool) -> None:
    """Migrate the database and leave a receipt of it."""
    from db import durability, releases  # noqa: PLC0415 (alembic takes its time to load)

    url, _ = connection()
    database = open_database()
    done = releases.migrate(database, url, _commit())
    was = done.schema_before or "empty"
    answer(asdict(done), as_json, [f"schema {was} -> {done.schema_after}"])
    say(f"Release {done.commit} is done in {done.seconds:.1f} s.")
    for setting in durability.switched_off(database):
        say(f"PostgreSQL runs with {setting} = off: a crash may lose what was committed. Switch it on.")


def _commit() -> str:
    """What is being released: the platform says so, else git, else nobody."""
    named = os.environ.get("HEROKU_SLUG_COMMIT") or os.environ.get("SOURCE_VERSION")
    return named or _git_head() or "unknown"


def _git_head() -> str | None:
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607 (whichever git there is)
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() or None if asked.returncode == 0 else None
