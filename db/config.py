"""The database layer's settings, read from the environment once (docs/configuration.md lists them)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import psycopg
from environs import Env, EnvError, validate
from psycopg.conninfo import conninfo_to_dict

from db.errors import ConfigurationError
from db.stakes import RetryTerms

_NOT_A_URL = (
    "DATABASE_URL must be postgresql://user:password@host:port/name?option=value as libpq reads it: percent-encode what is "
    "special in user and password (space %20, % %25, / %2F, @ %40), and use options that libpq knows"
)


@dataclass(frozen=True, slots=True)
class CreateLimits:
    """`cooldown` in seconds; `max_waiting` unfinished deliveries a client; the others requests an hour. 0: no limit."""

    cooldown: float = 60.0
    max_waiting: int = 5000
    account: int = 20
    address: int = 20
    client: int = 20_000
    caller: int = 20_000


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """Where the database is, how long it may take, and the rules that create and consume share. Times in seconds."""

    database_url: str
    statement_timeout: float
    token_keys: Mapping[str, bytes]
    active_token_key: str
    token_ttl: float
    min_token_life: float
    delivery_deadline: float
    limits: CreateLimits

    @property
    def lock_timeout(self) -> float:
        """How long a statement waits for a row's lock, in seconds: half of its time."""
        return self.statement_timeout / 2


def libpq_url(url: str) -> str:
    """`url` as libpq takes it: platforms write `postgres://`, SQLAlchemy users `postgresql+psycopg://`.

    Raises ConfigurationError without echoing it: libpq's own message quotes the password.
    """
    scheme, _, rest = url.strip().partition("://")
    if scheme.partition("+")[0] not in {"postgres", "postgresql"}:
        raise ConfigurationError("DATABASE_URL must start with postgres:// or postgresql://")
    taken = f"postgresql://{rest}"
    try:
        ports = str(conninfo_to_dict(taken).get("port") or "5432").split(",")
    except (psycopg.Error, ValueError):
        raise ConfigurationError(_NOT_A_URL) from None
    if not all(port.isdecimal() and 0 < int(port) < 65536 for port in ports if port):
        raise ConfigurationError("DATABASE_URL must name ports between 1 and 65535")
    return taken


def parse_token_keys(text: str) -> dict[str, bytes]:
    """`kid:base64,kid:base64` -> keys by id, in order; the first signs, the others still verify.

    Raises ConfigurationError without echoing a key.
    """
    keys: dict[str, bytes] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        key_id, _, encoded = entry.partition(":")
        try:
            key = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            key = b""
        if not key_id or len(key) < 32 or key_id in keys:
            raise ConfigurationError(
                "TOKEN_KEYS must be `kid:base64,…` with at least 32 bytes a key and each kid once; "
                "make one with: echo k1:$(openssl rand -base64 32)"
            )
        keys[key_id] = key
    if not keys:
        raise ConfigurationError("TOKEN_KEYS is empty")
    return keys


_SHORTEST_SECONDS = 0.001  # PostgreSQL counts time-outs in milliseconds, and takes none for no limit
LONGEST_SECONDS = 10 * 365 * 86_400.0  # what PostgreSQL can still add to the present, by far
LARGEST_COUNT = 1_000_000_000  # what every column that counts can hold
_LONGEST_STATEMENT = 4.0  # claims look back five seconds, the longest a transaction may take (tasks/slots.py)


def positive_seconds(env: Env, name: str, default: float, *, longest: float = LONGEST_SECONDS) -> float:
    """A number of seconds (or of what the name says), a thousandth at least; decimals are fine."""
    return float(env.float(name, default, validate=validate.Range(min=_SHORTEST_SECONDS, max=longest)))


def named(error: EnvError) -> ConfigurationError:
    """environs' message names the variable already; its text is safe because no secret has a typed parser there."""
    return ConfigurationError(str(error))


@cache
def settings() -> DatabaseSettings:
    """Read and check the settings, once a process. Raises ConfigurationError that names the variable."""
    env = Env()
    url, statement_timeout = connection()
    retry = retry_terms()
    try:
        keys = parse_token_keys(env.str("TOKEN_KEYS"))
        read = DatabaseSettings(
            database_url=url,
            statement_timeout=statement_timeout,
            token_keys=keys,
            active_token_key=next(iter(keys)),
            token_ttl=positive_seconds(env, "TOKEN_TTL_SECONDS", 86_400.0),
            min_token_life=retry.min_token_life,
            delivery_deadline=retry.delivery_deadline,
            limits=_limits(env),
        )
    except EnvError as error:
        raise named(error) from None
    if read.token_ttl <= read.min_token_life:
        raise ConfigurationError("TOKEN_TTL_SECONDS must exceed MIN_TOKEN_LIFE_SECONDS")
    return read


def _limits(env: Env) -> CreateLimits:
    """Cooldown, backlog, and `CREATE_LIMIT`: `account=20,address=20,…` an hour, or one number for all. 0: no limit."""
    hourly = parse_create_limit(env.str("CREATE_LIMIT", ""))
    return CreateLimits(
        cooldown=env.float(
            "RESEND_COOLDOWN_SECONDS", 60.0, validate=validate.Range(min=0, max=LONGEST_SECONDS)
        ),
        max_waiting=env.int("CLIENT_MAX_WAITING", 5000, validate=validate.Range(min=0, max=LARGEST_COUNT)),
        **hourly,
    )


def parse_create_limit(text: str) -> dict[str, int]:
    """The hourly limits that `text` sets; the others keep their defaults. Raises ConfigurationError."""
    whose = ("account", "address", "client", "caller")
    if _is_count(text.strip()):
        return dict.fromkeys(whose, int(text))
    read = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = entry.partition("=")
        if name not in whose or not _is_count(number) or name in read:
            raise ConfigurationError(
                "CREATE_LIMIT must be requests an hour: one number, or some of account=20,address=20,client=20000,"
                "caller=20000; 0 sets no limit, and 1000000000 is the largest"
            )
        read[name] = int(number)
    return read


def _is_count(text: str) -> bool:
    return (
        text.isascii()
        and text.isdecimal()
        and len(text) <= len(str(LARGEST_COUNT))
        and int(text) <= LARGEST_COUNT
    )


def connection() -> tuple[str, float]:
    """The libpq URL and the statement time-out in seconds: all that commands need. Raises ConfigurationError."""
    env = Env()
    try:
        url, timeout = (
            libpq_url(env.str("DATABASE_URL")),
            positive_seconds(env, "STATEMENT_TIMEOUT_SECONDS", 4.0),
        )
    except EnvError as error:
        raise named(error) from None
    if timeout > _LONGEST_STATEMENT:
        raise ConfigurationError(f"STATEMENT_TIMEOUT_SECONDS must be at most {_LONGEST_STATEMENT:g}")
    return url, timeout


def retry_terms() -> RetryTerms:
    """How long a mail may wait, and what life its token must have left. Raises ConfigurationError."""
    env = Env()
    try:
        return RetryTerms(
            delivery_deadline=positive_seconds(env, "DELIVERY_DEADLINE_SECONDS", 14_400.0),
            min_token_life=positive_seconds(env, "MIN_TOKEN_LIFE_SECONDS", 300.0),
        )
    except EnvError as error:
        raise named(error) from None


def oscillation_limit() -> int:
    """`OSCILLATION_LIMIT`: leases of one delivery beyond which somebody is told. Raises ConfigurationError."""
    try:
        return int(Env().int("OSCILLATION_LIMIT", 12, validate=validate.Range(min=1, max=LARGEST_COUNT)))
    except EnvError as error:
        raise named(error) from None


@cache
def log_format() -> str:
    """`LOG_FORMAT`: `json` (the default) or `console`. Every process reads it, whatever else it needs."""
    try:
        return str(Env().str("LOG_FORMAT", "json", validate=validate.OneOf(["json", "console"])))
    except EnvError as error:
        raise named(error) from None
