"""Liveness and readiness, the access log, and settings that are checked at start."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from app import config, create_app
from app.services import Services
from db.errors import ConfigurationError
from db.session import Database
from dev.redis import Redis
from tasks.config import public_url
from tests.support.api import SETTINGS, Api, make_api
from tests.support.courier import DATABASE_SETTINGS
from tests.support.log_lines import logging_as


@pytest.fixture
def api(database: Database) -> Api:
    return make_api(database)


def test_healthz_asks_nobody(api: Api) -> None:
    api.database._url = "postgresql://postgres@127.0.0.1:1/nowhere"
    assert api.http.get("/healthz").get_json() == {"status": "ok"}


def test_readyz_without_redis_is_degraded_and_still_ready(api: Api) -> None:
    answer = api.http.get("/readyz")
    assert (answer.status_code, answer.get_json()) == (
        200,
        {"status": "degraded", "checks": {"database": "ok", "redis": "away"}},
    )


def test_readyz_with_everything_is_ready(database: Database, redis_server: Redis) -> None:
    answer = make_api(database, redis_url=redis_server.url()).http.get("/readyz")
    assert answer.get_json() == {"status": "ready", "checks": {"database": "ok", "redis": "ok"}}


def test_readyz_without_the_database_is_down(api: Api) -> None:
    services = Services(
        SETTINGS,
        Database("postgresql://postgres@127.0.0.1:1/nowhere", statement_timeout=1.0, size=1),
        DATABASE_SETTINGS,
        lambda: None,
    )
    answer = create_app(services).test_client().get("/readyz")
    assert (answer.status_code, answer.get_json()["checks"]["database"]) == (503, "away")


def test_readyz_with_a_database_that_only_reads_is_down(api: Api) -> None:
    with api.database.transaction() as tx:
        tx.execute(
            f"ALTER DATABASE {tx.info.dbname} SET default_transaction_read_only = on"  # type: ignore[arg-type]
        )
    api.database.close()
    answer = api.http.get("/readyz")
    assert (answer.status_code, answer.get_json()["checks"]["database"]) == (503, "read_only")
    assert answer.get_json()["status"] == "unavailable"


def test_readyz_on_an_older_schema_is_down_and_on_a_newer_one_is_not(api: Api) -> None:
    with api.database.transaction() as tx:
        tx.execute("UPDATE alembic_version SET version_num = 'from_the_future'")
    assert api.http.get("/readyz").status_code == 200
    with api.database.transaction() as tx:
        tx.execute("DELETE FROM alembic_version")
    answer = api.http.get("/readyz")
    assert (answer.status_code, answer.get_json()["checks"]["database"]) == (503, "schema_outdated")


def test_a_request_is_one_line_without_query_address_or_token(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_as("json"):
        made = api.create(metadata={"note": "ada@example.com"}).get_json()
        token = api.token(made["verification_id"])
        api.http.get(f"/verify?token={token}")
        api.http.get(f"/verify/{token}/ada@example.com")
        api.http.post("/verify", data={"token": token, "action": "confirm"})
    written = capsys.readouterr().err
    lines = [json.loads(line) for line in written.splitlines()]
    access = [line for line in lines if line["logger"] == "access"]
    assert [(line["method"], line["path"], line["status"]) for line in access] == [
        ("POST", "/v1/verifications", 202),
        ("GET", "/verify", 200),
        ("GET", "unmatched", 404),
        ("POST", "/verify", 200),
    ]
    assert access[0]["client_id"].startswith("cli_")
    assert access[0]["request_id"] == access[0]["correlation_id"] == made["correlation_id"]
    assert all("dropped" not in line for line in lines)
    leaked = [line for line in lines if line["event"] == "token_leaked"]
    assert [(line["alert"], line["verification_id"]) for line in leaked] == [(True, made["verification_id"])]
    assert token not in written
    assert "ada@example.com" not in written


GOOD = {
    "PUBLIC_URL": "https://countersign.example",
    "SECRET_KEY": "x" * 16,
    "REDIS_URL": "rediss://redis.example:6379",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in ("TRUSTED_PROXIES", "ALLOW_RESERVED_DOMAINS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    public_url.cache_clear()
    yield monkeypatch
    public_url.cache_clear()


@pytest.mark.usefixtures("environment")
def test_settings_have_safe_defaults() -> None:
    read = config.from_environment()
    assert (read.trusted_proxies, read.allow_reserved_domains) == (0, False)
    assert GOOD["SECRET_KEY"] not in repr(read)
    assert GOOD["REDIS_URL"] not in repr(read)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PUBLIC_URL", None),
        ("PUBLIC_URL", "hunter2"),
        ("SECRET_KEY", None),
        ("SECRET_KEY", "hunter2"),
        ("REDIS_URL", None),
        ("REDIS_URL", "hunter2"),
        ("TRUSTED_PROXIES", "hunter2"),
        ("TRUSTED_PROXIES", "-1"),
        ("ALLOW_RESERVED_DOMAINS", "hunter2"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named_and_not_shown(
    environment: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    environment.delenv(name) if value is None else environment.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name) as refused:
        config.from_environment()
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(("proxies", "seen"), [(0, "127.0.0.1"), (1, "3.3.3.3"), (2, "2.2.2.2")])
def test_exactly_the_configured_number_of_proxies_is_trusted(
    database: Database, proxies: int, seen: str
) -> None:
    api = make_api(database, trusted_proxies=proxies)
    addresses: list[str | None] = []
    app = api.http.application

    @app.before_request
    def look() -> None:
        from flask import request

        addresses.append(request.remote_addr)

    api.http.get("/healthz", headers={"X-Forwarded-For": "1.1.1.1, 2.2.2.2, 3.3.3.3"})
    assert addresses == [seen]
