"""The worker's settings, read from the environment once (docs/configuration.md lists them). Seconds may be decimals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit

from environs import Env, EnvError, validate

from db import config as db_config
from db.config import positive_seconds
from db.errors import ConfigurationError

_SECONDS_A_DAY = 86_400.0
_LONGEST_DAYS = 3650.0


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How mails are sent, leased and retried. Times in seconds."""

    public_url: str
    mail_url: str
    mail_from: str
    lease: float
    lease_margin: float
    send_deadline: float
    retry_backoff: tuple[float, ...]
    max_attempts: int
    unknown_budget: int
    unknown_backoff: tuple[float, ...]
    evidence_window: float
    sweep_interval: float
    slots: int
    release: str | None
    oscillation_limit: int = 12
    retention: float = 30 * 86_400.0


@cache
def settings() -> WorkerSettings:
    """Read and check the worker's settings. Raises ConfigurationError that names the variable."""
    env = Env()
    try:
        read = WorkerSettings(
            public_url=public_url(),
            mail_url=env.str("MAIL_URL"),
            mail_from=env.str("MAIL_FROM"),
            lease=positive_seconds(env, "LEASE_SECONDS", 90.0),
            lease_margin=positive_seconds(env, "LEASE_MARGIN_SECONDS", 5.0),
            send_deadline=positive_seconds(env, "SEND_DEADLINE_SECONDS", 15.0),
            retry_backoff=_steps(env, "RETRY_BACKOFF_SECONDS", (60.0, 300.0, 900.0)),
            max_attempts=_at_least_one(env, "MAX_ATTEMPTS", 6),
            unknown_budget=_at_least_one(env, "UNKNOWN_BUDGET", 3),
            unknown_backoff=_steps(env, "UNKNOWN_BACKOFF_SECONDS", (30.0, 120.0, 600.0)),
            evidence_window=positive_seconds(env, "EVIDENCE_WINDOW_SECONDS", 1800.0),
            sweep_interval=sweep_interval(),
            slots=_at_least_one(env, "WORKER_SLOTS", 16),
            release=env.str("HEROKU_SLUG_COMMIT", None) or env.str("SOURCE_VERSION", None),
            oscillation_limit=db_config.oscillation_limit(),
            retention=_SECONDS_A_DAY * positive_seconds(env, "RETENTION_DAYS", 30.0, longest=_LONGEST_DAYS),
        )
    except EnvError as error:
        raise db_config.named(error) from None
    _check_lease(read)
    return read


@cache
def public_url() -> str:
    """`PUBLIC_URL` without a trailing slash: the only source of links (never a request's headers)."""
    try:
        url = Env().str("PUBLIC_URL").rstrip("/")
    except EnvError as error:
        raise db_config.named(error) from None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError("PUBLIC_URL must be the http(s) address people reach this service at")
    return url


@cache
def sweep_interval() -> float:
    """`SWEEP_INTERVAL_SECONDS`, which beat needs as well."""
    try:
        return positive_seconds(Env(), "SWEEP_INTERVAL_SECONDS", 15.0)
    except EnvError as error:
        raise db_config.named(error) from None


def _check_lease(read: WorkerSettings) -> None:
    """A send must end inside its lease by a margin, and a lock must be waited for less than that margin."""
    if read.lease < read.send_deadline + 2 * read.lease_margin:
        raise ConfigurationError(
            "LEASE_SECONDS must be at least SEND_DEADLINE_SECONDS + 2 * LEASE_MARGIN_SECONDS "
            f"(now {read.lease:g} < {read.send_deadline:g} + 2 * {read.lease_margin:g})"
        )
    if db_config.settings().lock_timeout >= read.lease_margin:
        raise ConfigurationError(
            "STATEMENT_TIMEOUT_SECONDS must stay below twice LEASE_MARGIN_SECONDS: "
            "half of it is the longest wait for a row's lock"
        )


def _steps(env: Env, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
    steps = tuple(env.list(name, list(default), subcast=float))
    if not steps or any(not 0 < seconds <= db_config.LONGEST_SECONDS for seconds in steps):
        raise ConfigurationError(f"{name} must be seconds above 0, at most ten years, separated by commas")
    return steps


def _at_least_one(env: Env, name: str, default: int) -> int:
    return int(env.int(name, default, validate=validate.Range(min=1, max=db_config.LARGEST_COUNT)))
