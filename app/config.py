"""The web process's settings, read from the environment once (docs/configuration.md lists them)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from environs import Env, EnvError, validate

from app.disposable import DisposablePolicy
from db.config import LARGEST_COUNT, named
from db.errors import ConfigurationError
from tasks.config import public_url

_SECRET_LENGTH = 16


@dataclass(frozen=True, slots=True)
class WebSettings:
    """What serving needs beside the database's settings."""

    public_url: str
    secret_key: str = field(repr=False)
    redis_url: str = field(repr=False)
    trusted_proxies: int = 0
    allow_reserved_domains: bool = False
    consume_limit: int = 300


def from_environment() -> WebSettings:
    """Read and check them. Raises ConfigurationError that names the variable and never its value."""
    disposable_policy()  # a mistake there shows at start as well
    env = Env()
    try:
        read = WebSettings(
            public_url=public_url(),
            secret_key=env.str("SECRET_KEY"),
            redis_url=env.str("REDIS_URL"),
            trusted_proxies=env.int("TRUSTED_PROXIES", 0, validate=validate.Range(min=0, max=10)),
            allow_reserved_domains=env.bool("ALLOW_RESERVED_DOMAINS", False),
            consume_limit=env.int("CONSUME_LIMIT", 300, validate=validate.Range(min=0, max=LARGEST_COUNT)),
        )
    except EnvError as error:
        raise named(error) from None
    if len(read.secret_key) < _SECRET_LENGTH:
        raise ConfigurationError(
            f"SECRET_KEY must have at least {_SECRET_LENGTH} characters; make one with: openssl rand -base64 32"
        )
    if not read.redis_url.startswith(("redis://", "rediss://")):
        raise ConfigurationError("REDIS_URL must start with redis:// or rediss://")
    return read


@cache
def disposable_policy() -> DisposablePolicy:
    """Its own reading: commands show verifications too, without the settings of serving. Raises ConfigurationError."""
    try:
        read = Env().enum("DISPOSABLE_POLICY", DisposablePolicy.ALLOW, enum=DisposablePolicy, by_value=True)
    except EnvError as error:
        raise named(error) from None
    assert isinstance(read, DisposablePolicy)
    return read
