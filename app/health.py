"""`/healthz`: this process answers. `/readyz`: it can do its work."""

from __future__ import annotations

import ssl
from typing import Any

import redis
from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from app.services import services
from db import schema
from db.errors import DatabaseUnavailable
from db.session import Database

blueprint = Blueprint("health", __name__)
_REDIS_SECONDS = 0.25


@blueprint.get("/healthz")
def healthz() -> ResponseReturnValue:
    """Liveness: asks nobody else."""
    return jsonify(status="ok")


@blueprint.get("/readyz")
def readyz() -> ResponseReturnValue:
    """Readiness: a database to write to and its schema must be there; without Redis mail is only slower."""
    database = _database()
    checks = {
        "database": database,
        "redis": "ok" if _redis_answers(services().settings.redis_url) else "away",
    }
    if database != "ok":
        return jsonify(status="unavailable", checks=checks), 503
    return jsonify(status="ready" if checks["redis"] == "ok" else "degraded", checks=checks)


def _database() -> str:
    database = services().database
    try:
        if _is_read_only(database):
            return "read_only"
        return "ok" if schema.is_usable(database) else "schema_outdated"
    except DatabaseUnavailable:
        return "away"


def _is_read_only(database: Database) -> bool:
    """A standby, or a primary that its owner has switched to read-only: looking works, nothing else does."""
    with database.transaction() as tx:
        row = tx.execute("SELECT current_setting('transaction_read_only') AS setting").fetchone()
    return row is None or row["setting"] == "on"


def _redis_answers(url: str) -> bool:
    # Platforms give rediss:// a self-signed certificate for a name that is not the host's.
    tls: dict[str, Any] = {}
    if url.startswith("rediss://"):
        tls = {"ssl_cert_reqs": ssl.CERT_NONE, "ssl_check_hostname": False}
    try:
        with redis.Redis.from_url(
            url, socket_timeout=_REDIS_SECONDS, socket_connect_timeout=_REDIS_SECONDS, retry=None, **tls
        ) as client:
            return bool(client.ping())
    except (redis.RedisError, OSError, ValueError):
        return False
