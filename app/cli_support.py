"""What all commands share: data on stdout, words on stderr; exit 0 done, 1 refused, 2 usage, 3 unreachable."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID

import click
import psycopg
from flask.cli import AppGroup

from db.config import connection
from db.errors import CommitUnknown, ConfigurationError, CountersignError, DatabaseUnavailable
from db.logs import mask
from db.session import Database

REFUSED, USAGE, UNREACHABLE = 1, 2, 3

json_option = click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")


class _Plainly(click.Command):
    """Errors are one line and an exit code, never a traceback of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(not _is_text(argument) for argument in args):
            raise click.UsageError("arguments must be UTF-8", ctx)
        with _masked():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _masked():
                return super().invoke(ctx)
        except (CountersignError, psycopg.Error) as error:
            end(*_in_words(error))


@contextmanager
def _masked() -> Iterator[None]:
    """click quotes what it does not understand: a key or an address in the wrong place must not end in a build's log."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # its message is the help, in many lines; nobody wrote anything that could be masked
    except click.UsageError as error:
        raise click.UsageError(mask(error.format_message()), error.ctx) from None


def _is_text(argument: str) -> bool:
    """Whether it was UTF-8: Python keeps other bytes as lone surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _in_words(error: CountersignError | psycopg.Error) -> tuple[str, int]:
    """What went wrong, for a person, and the exit code."""
    if any(isinstance(cause, psycopg.errors.ReadOnlySqlTransaction) for cause in _causes(error)):
        return "the database is read-only: DATABASE_URL must name one that takes writes", UNREACHABLE
    match error:
        case ConfigurationError():
            hint = (
                "" if os.environ.get("DATABASE_URL") else " (beside `make run`: `set -a; . .run/env; set +a`)"
            )
            return f"{error}{hint}", USAGE
        case CommitUnknown():
            return (
                "the database's answer was lost, it may have been done: look before you repeat",
                UNREACHABLE,
            )
        case DatabaseUnavailable():
            return "the database does not answer: check DATABASE_URL and that PostgreSQL runs", UNREACHABLE
        case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedColumn():
            return (
                "the database's schema is missing or older than this release: run `flask --app app release`",
                UNREACHABLE,
            )
        case psycopg.Error():
            return f"the database refused ({type(error).__name__})", REFUSED  # its message may quote rows
    return str(error) or (error.__doc__ or "").partition("\n")[0], REFUSED


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__


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
        lines = [json.dumps(plain(data), ensure_ascii=False)]
    if sys.stdout is None:
        _unwritten("it is closed")
    try:
        for line in lines:
            click.echo(line)
    except BrokenPipeError:
        raise  # whoever read it has enough; click ends quietly
    except OSError as error:
        with suppress(OSError):  # what is left in the buffer would fail once more when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _unwritten(error.strerror or type(error).__name__)


def _unwritten(why: str) -> NoReturn:
    end(f"done, but the answer could not be written to standard output: {why}", REFUSED)


def say(words: str) -> None:
    """Words for a person, on stderr, if that takes them."""
    with suppress(OSError):
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
