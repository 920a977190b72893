"""Parts that are given instead of ours (`DATABASE_URL`, `REDIS_URL`, `MAIL_URL`): checked first, shown without passwords."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import urlsplit

import psycopg

from db.config import libpq_url
from db.errors import ConfigurationError
from dev.processes import DevError
from tasks.providers.mail_url import AccountUrl, accounts

ANSWER_SECONDS = 5
SECRET_OPTION = re.compile(r"(?i)((?:^|&)[^=&]*(?:pass|secret|token)[^=&]*=)[^&]*")


def check_given(environment: Mapping[str, str]) -> None:
    """Raises `DevError`, one sentence, when something that is given cannot serve. An empty variable is not given."""
    for name, check in (("DATABASE_URL", _database), ("REDIS_URL", _redis), ("MAIL_URL", _mail)):
        url = environment.get(name)
        if url:
            check(url)


def _database(url: str) -> None:
    try:
        with psycopg.connect(libpq_url(url), connect_timeout=ANSWER_SECONDS):
            return
    except ConfigurationError as error:
        raise DevError(str(error)) from None
    except (psycopg.ProgrammingError, ValueError):  # their text quotes pieces of the URL
        raise DevError(
            "DATABASE_URL cannot be read: write postgresql://user:password@host:port/name, "
            "and / : @ ? # % in a password as %2F %3A %40 %3F %23 %25"
        ) from None
    except psycopg.OperationalError as error:
        words = (str(error).strip() or "no answer").splitlines()[0]
        raise _useless("DATABASE_URL", words, "the embedded PostgreSQL") from None


def _redis(url: str) -> None:
    import redis  # noqa: PLC0415 (half a second, for those only who give one)

    try:
        parts = urlsplit(url)
        if parts.scheme == "rediss":  # whom it trusts is Celery's matter
            socket.create_connection((parts.hostname or "", parts.port or 6379), ANSWER_SECONDS).close()
            return
        with closing(
            redis.Redis.from_url(
                url,
                socket_connect_timeout=ANSWER_SECONDS,
                socket_timeout=ANSWER_SECONDS,
            )
        ) as client:
            client.ping()
    except ValueError:
        raise DevError(
            "REDIS_URL cannot be read: write redis://:password@host:port/0 or rediss://…"
        ) from None
    except (redis.RedisError, OSError) as error:
        raise _useless("REDIS_URL", str(error), "the embedded Redis") from None


def _mail(url: str) -> None:
    """Readable, and one of its servers takes connections. What they say to a mail is the worker's to find out."""
    from tasks.providers.registry import providers_from_url  # noqa: PLC0415 (slow to load too)

    try:
        providers_from_url(url)
        servers = [each for each in accounts(url) if each.scheme in {"smtp", "smtps"}]
    except ValueError as error:  # it names MAIL_URL and quotes nothing
        raise DevError(str(error)) from None
    problems = [problem for server in servers if (problem := _reach(server))]
    if problems and len(problems) == len(servers):
        raise _useless("MAIL_URL", "; ".join(problems), "the dev inbox")


def _reach(server: AccountUrl) -> str:
    """Why no connection comes about; empty when one does."""
    host, port = server.host, server.port or _default_port(server)
    try:
        socket.create_connection((host, port), ANSWER_SECONDS).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return ""


def _default_port(server: AccountUrl) -> int:
    if server.scheme == "smtps":
        return 465
    near = server.host in {"localhost", "::1"} or server.host.startswith("127.")
    return 25 if server.options.get("tls", "none" if near else "starttls") == "none" else 587


def _useless(name: str, words: str, ours: str) -> DevError:
    return DevError(f"{name} does not work ({words.rstrip('.')}): correct it, or leave it out for {ours}")


def masked(url: str) -> str:
    """A URL to print: without its password, wherever it stands."""
    parts = urlsplit(url)
    user_info, at, place = parts.netloc.rpartition("@")
    user, _, password = user_info.partition(":")
    shown = f"{user}:***" if password else user
    query = SECRET_OPTION.sub(r"\1***", parts.query)
    return parts._replace(netloc=f"{shown}{at}{place}", query=query).geturl()


def mail_servers(mail_url: str) -> str:
    """`smtp://mail.example.com:587`, comma-separated, without users and options."""
    return ", ".join(
        f"{each.scheme}://{each.host}" + (f":{each.port}" if each.port else "") for each in accounts(mail_url)
    )
