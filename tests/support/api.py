"""The HTTP service in this process, on the test's database, with a caller that has an API key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app import create_app
from app.branding import JUDGED_HOURLY
from app.config import WebSettings
from app.services import Services
from db import clients, ids, limits, tokens
from db.clients import NewKey
from db.config import CreateLimits
from db.limits import Bucket
from db.session import Database
from tests.support.courier import DATABASE_SETTINGS

SETTINGS = WebSettings(
    public_url="https://countersign.example",
    secret_key="not-a-secret-but-long-enough-for-a-test",
    redis_url="redis://127.0.0.1:1/0",
    allow_reserved_domains=True,
)
BODY = {"account_id": "account-1", "email": "ada@example.com"}


@dataclass
class Api:
    """Calls the service as one client; `kicks` counts how often a worker was woken."""

    database: Database
    http: FlaskClient
    owner: NewKey
    kicks: list[int] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.owner.key}"}

    def create(self, key: str | None = "key-1", body: Any = None, **changes: Any) -> TestResponse:
        """POST /v1/verifications with a good body, changed by `changes`."""
        headers = self.headers | ({"Idempotency-Key": key} if key is not None else {})
        return self.http.post("/v1/verifications", json={**(body or BODY), **changes}, headers=headers)

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.http.get(path, headers=self.headers | headers)

    def consume(self, token: str) -> TestResponse:
        return self.http.post("/v1/tokens/consume", json={"token": token})

    def token(self, verification_id: str) -> str:
        """The token that the mail would carry."""
        return token_of(self.database, verification_id)


def make_api(
    database: Database,
    name: str = "host",
    *,
    return_urls: tuple[str, ...] = (),
    limits: CreateLimits = DATABASE_SETTINGS.limits,
    **settings: Any,
) -> Api:
    """The service with a fresh client of that name."""
    kicks: list[int] = []
    limited = replace(DATABASE_SETTINGS, limits=limits)
    services = Services(replace(SETTINGS, **settings), database, limited, lambda: kicks.append(1))
    owner = clients.create(database, name, return_urls)
    return Api(database, create_app(services).test_client(), owner, kicks)


def token_of(database: Database, verification_id: str) -> str:
    """Derive a verification's token from its row, as a worker does."""
    with database.transaction() as tx:
        row = tx.execute(
            "SELECT id, token_key_id, token_nonce, email FROM verifications WHERE id = %s",
            [ids.parse("ver", verification_id)],
        ).fetchone()
    assert row is not None
    keys = DATABASE_SETTINGS.token_keys
    return tokens.derive(keys, row["token_key_id"], row["id"], row["email"], row["token_nonce"])


def snapshot(database: Database) -> list[dict[str, Any]]:
    """Every row that a failed call must leave alone."""
    with database.transaction() as tx:
        return [
            {"table": table, **row}
            for table in ("accounts", "verifications", "email_outbox", "delivery_attempts", "state_changes")
            for row in tx.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()  # type: ignore[arg-type]
        ]


def use_up_judging(api: Api, *, but: int = 0) -> None:
    """Leave a client so many brandings that it may have judged this hour."""
    bucket = Bucket("branding_judged_by_client", api.owner.client.id.bytes, JUDGED_HOURLY)
    with api.database.transaction() as tx:
        for _ in range(JUDGED_HOURLY - but):
            limits.take(tx, [bucket])
