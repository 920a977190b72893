"""What all commands share: data on stdout, words on stderr; exit 0 done, 1 refused, 2 usage, 3 unreachable."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID

import click
import psycopg
from flask.cli import AppGroup

from db.config import connection
from db.errors import ConfigurationError, CountersignError, DatabaseUnavailable
from db.session import Database

REFUSED, USAGE, UNREACHABLE = 1, 2, 3

json_option = click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")


class _Plainly(click.Command):
    """Errors are one line and an exit code, never a traceback of ours."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            end(str(error), USAGE)
        except DatabaseUnavailable:
            end("the database does not answer: check DATABASE_URL and that PostgreSQL runs", UNREACHABLE)
        except psycopg.errors.UndefinedTable:
            end("the database has no tables yet: run `flask --app app release` first", REFUSED)
        except CountersignError as error:
            end(str(error) or (error.__doc__ or "").partition("\n")[0], REFUSED)


class Command(_Plainly):
    """A command of its own."""


class Commands(_Plainly, AppGroup):
    """A group of commands."""


def open_database() -> Database:
    """The database of DATABASE_URL; nothing else of the environment is needed. Raises ConfigurationError."""
    url, statement_timeout = connection()
    return Database(url, statement_timeout=statement_timeout, size=1)


def answer(data: Any, as_json: bool, lines: Iterable[str]) -> None:
    """`data` as JSON, or `lines` for a person, on stdout."""
    if as_json:
        click.echo(json.dumps(plain(data), ensure_ascii=False))
    else:
        for line in lines:
            click.echo(line)


def say(words: str) -> None:
    """Words for a person, on stderr."""
    click.echo(words, err=True)


def end(words: str, code: int) -> NoReturn:
    """Say why, and stop with an exit code."""
    say(f"Error: {words}")
    sys.exit(code)


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: times in UTC as text, ids as hex."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    return value.hex if isinstance(value, UUID) else value


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Columns as wide as their widest cell."""
    cells = [list(head), *[["-" if cell is None else str(plain(cell)) for cell in row] for row in rows]]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
