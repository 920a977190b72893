"""A courier in this process, with the real database and a mail server of the test's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from db import config as db_config
from db import ids, verifications
from db.config import CreateLimits
from db.receipts import Verification
from db.session import Database
from db.verifications import NewVerification
from tasks import runtime
from tasks.brandings import Brandings
from tasks.config import WorkerSettings
from tasks.delivery import Courier
from tasks.message import CURRENT_TEMPLATE_VERSION, Sender
from tasks.providers.registry import providers_from_url
from tasks.shutdown import Shutdown
from tasks.slots import Slots
from tests.support.environment import MAIL_FROM, TOKEN_KEYS

SETTINGS = WorkerSettings(
    public_url="https://countersign.example",
    mail_url="",
    mail_from=MAIL_FROM,
    lease=4.0,
    lease_margin=1.0,
    send_deadline=1.0,
    retry_backoff=(60.0, 300.0, 900.0),
    max_attempts=3,
    unknown_budget=3,
    unknown_backoff=(30.0,),
    evidence_window=1800.0,
    sweep_interval=15.0,
    slots=4,
    release="test",
)
DATABASE_SETTINGS = db_config.DatabaseSettings(
    database_url="",
    statement_timeout=4.0,
    token_keys=db_config.parse_token_keys(TOKEN_KEYS),
    active_token_key="k1",
    token_ttl=86_400.0,
    min_token_life=300.0,
    delivery_deadline=14_400.0,
    limits=CreateLimits(cooldown=0, max_waiting=0, account=0, address=0, client=0, caller=0),
)


def make_courier(
    database: Database, mail_url: str, *, kick: Callable[[], None] = lambda: None, **overrides: Any
) -> Courier:
    """A courier as `tasks.runtime` builds it."""
    settings = replace(SETTINGS, mail_url=mail_url, **overrides)
    sender = Sender.parse(settings.mail_from)
    shutdown = Shutdown()
    routes = runtime.routes(settings, sender.address, providers_from_url(mail_url), shutdown)
    return Courier(
        database=database,
        settings=settings,
        routes=routes,
        policy=replace(runtime.policy(settings, routes), jitter=lambda: 0.0),
        render=partial(runtime.render, settings.public_url, sender, Brandings(database)),
        kick=kick,
        slots=Slots(settings.slots),
        shutdown=shutdown,
    )


def request(**overrides: Any) -> NewVerification:
    """A request as the API validates it."""
    values: dict[str, Any] = {
        "idempotency_key": ids.new_id().hex,
        "key_is_ours": False,
        "account_id": ids.new_id().hex,
        "email": "person@example.com",
        "email_canonical": "person@example.com",
        "purpose": "signup",
        "lifetime": None,
        "locale": None,
        "return_url": None,
        "metadata": None,
        "correlation_id": "req_test",
        "template_version": CURRENT_TEMPLATE_VERSION,
        "caller": b"caller",
        **overrides,
    }
    return NewVerification(**values)


def create(database: Database, key: str, **overrides: Any) -> Verification:
    """A verification as `POST /v1/verifications` makes it for the API key's client."""
    return verifications.create(database, key, request(**overrides), DATABASE_SETTINGS).verification
