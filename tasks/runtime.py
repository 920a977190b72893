"""This process's courier, built from the environment at its first use, after fork."""

from __future__ import annotations

import os
import threading
from functools import cache, partial

from db import config as db_config
from db import ids, tokens
from db.delivery_rules import ProviderTraits
from db.errors import ConfigurationError
from db.leases import ClaimTerms, Lease
from db.session import database
from tasks import kicker, message
from tasks.config import WorkerSettings, settings
from tasks.delivery import Courier
from tasks.message import Sender
from tasks.providers.base import OutgoingMail, Provider
from tasks.providers.registry import providers_from_url
from tasks.retry_policy import RetryPolicy
from tasks.shutdown import SHUTDOWN
from tasks.slots import ScanStart, Slots

_SPARE_CONNECTIONS = 2  # the timer and a sweep, beside the slots


_building = threading.Lock()


def courier() -> Courier:
    """The one courier of this process, whoever asks first. Raises ConfigurationError that names the variable."""
    with _building:
        return _courier()


@cache
def _courier() -> Courier:
    read = settings()
    sender, providers = _sender(read), _providers(read)
    traits = tuple(
        ProviderTraits(provider.name, provider.can_look_up, provider.replay_window)
        for provider in providers.values()
    )
    return Courier(
        database=database(read.slots + _SPARE_CONNECTIONS),
        settings=read,
        terms=partial(_terms, read, sender.address, traits),
        providers=providers,
        policy=_policy(read, traits),
        render=partial(render, read.public_url, sender),
        kick=kicker.kick,
        slots=Slots(read.slots),
        shutdown=SHUTDOWN,
        scan=ScanStart(read.sweep_interval),
    )


def _sender(read: WorkerSettings) -> Sender:
    try:
        return Sender.parse(read.mail_from)
    except ValueError as error:
        raise ConfigurationError(f"MAIL_FROM must be an address or `Name <address>`: {error}") from None


def _providers(read: WorkerSettings) -> dict[str, Provider]:
    try:
        return {provider.name: provider for provider in providers_from_url(read.mail_url)}
    except ValueError as error:  # its sentence names MAIL_URL and quotes nothing of it
        raise ConfigurationError(str(error)) from None


def _after_fork() -> None:
    """Neither a courier's connections nor a lock that another thread held may be taken over."""
    global _building  # noqa: PLW0603
    _building = threading.Lock()
    _courier.cache_clear()


os.register_at_fork(after_in_child=_after_fork)


def render(public_url: str, sender: Sender, lease: Lease) -> OutgoingMail:
    """The mail of a lease: the same bytes for every lease of one delivery.

    Raises UnknownTokenKey or UnknownTemplateVersion when another release wrote the row.
    """
    token = tokens.derive(
        db_config.settings().token_keys,
        lease.token_key_id,
        lease.verification_id,
        lease.recipient,
        lease.token_nonce,
    )
    return message.render(
        delivery_key=ids.public("dlv", lease.delivery_id),
        verification_id=ids.public("ver", lease.verification_id),
        recipient=lease.recipient,
        token=token,
        purpose=lease.purpose,
        locale=lease.locale or "",
        created_at=lease.created_at,
        expires_at=lease.expires_at,
        public_url=public_url,
        mail_from=sender,
        template_version=lease.template_version,
    )


def _terms(read: WorkerSettings, sender: str, traits: tuple[ProviderTraits, ...], owner: str) -> ClaimTerms:
    return ClaimTerms(
        route="live",
        owner=owner,
        lease_seconds=read.lease,
        sender=sender,
        providers=traits,
        evidence_window=read.evidence_window,
        unknown_budget=read.unknown_budget,
    )


def _policy(read: WorkerSettings, traits: tuple[ProviderTraits, ...]) -> RetryPolicy:
    return RetryPolicy(
        max_attempts=read.max_attempts,
        backoff=read.retry_backoff,
        unknown_budget=read.unknown_budget,
        unknown_backoff=read.unknown_backoff,
        evidence_window=read.evidence_window,
        providers=traits,
    )
