"""This process's courier, built from the environment at its first use, after fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from functools import cache, partial

from db import config as db_config
from db import ids, tokens
from db.delivery_rules import ProviderTraits
from db.errors import ConfigurationError, DatabaseUnavailable
from db.leases import ClaimTerms, Lease
from db.session import database
from tasks import kicker, message
from tasks.brandings import Brandings
from tasks.config import WorkerSettings, settings
from tasks.delivery import Courier, NothingMaySend
from tasks.message import Sender
from tasks.providers.base import OutgoingMail, Provider
from tasks.providers.registry import providers_from_url
from tasks.providers.simulator import Simulator
from tasks.retry_policy import RetryPolicy
from tasks.routes import LIVE, TEST, Route
from tasks.shutdown import SHUTDOWN, Shutdown
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
    sender = _sender(read)
    by_route = routes(read, sender.address, _providers(read), SHUTDOWN)
    connections = database(read.slots + _SPARE_CONNECTIONS)
    return Courier(
        database=connections,
        settings=read,
        routes=by_route,
        policy=policy(read, by_route),
        render=partial(render, read.public_url, sender, Brandings(connections)),
        kick=kicker.kick,
        slots=Slots(read.slots),
        shutdown=SHUTDOWN,
    )


def _sender(read: WorkerSettings) -> Sender:
    try:
        return Sender.parse(read.mail_from)
    except ValueError as error:
        raise ConfigurationError(f"MAIL_FROM must be an address or `Name <address>`: {error}") from None


def _providers(read: WorkerSettings) -> Sequence[Provider]:
    try:
        return providers_from_url(read.mail_url)
    except ValueError as error:  # its sentence names MAIL_URL and quotes nothing of it
        raise ConfigurationError(str(error)) from None


def _after_fork() -> None:
    """Neither a courier's connections nor a lock that another thread held may be taken over."""
    global _building  # noqa: PLW0603
    _building = threading.Lock()
    _courier.cache_clear()


os.register_at_fork(after_in_child=_after_fork)


def render(public_url: str, sender: Sender, brandings: Brandings, lease: Lease) -> OutgoingMail:
    """The mail of a lease: the same bytes for every lease of one delivery.

    Raises UnknownTokenKey, UnknownTemplateVersion or UnknownBrandingShape when another release wrote the row, TemplateError
    when its branding makes no mail, NothingMaySend when that cannot be read now.
    """
    branding = None
    if lease.branding_id is not None:
        try:
            branding = brandings.get(lease.branding_id)
        except DatabaseUnavailable:  # says nothing about this mail
            raise NothingMaySend("branding_unread") from None
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
        branding=branding,
    )


def routes(
    read: WorkerSettings, sender: str, providers: Sequence[Provider], shutdown: Shutdown
) -> dict[str, Route]:
    """Live mail by `providers`, in order of preference; test clients' by the simulator and nothing else."""
    simulator = Simulator(shutdown)
    return {
        LIVE: _route(LIVE, read, sender, providers),
        TEST: _route(TEST, read, sender, [simulator]),
    }


def _route(name: str, read: WorkerSettings, sender: str, providers: Sequence[Provider]) -> Route:
    terms = partial(
        ClaimTerms,
        name,
        lease_seconds=read.lease,
        sender=sender,
        providers=tuple(map(_traits, providers)),
        evidence_window=read.evidence_window,
        unknown_budget=read.unknown_budget,
    )
    by_name = {provider.name: provider for provider in providers}
    return Route(name, by_name, terms, ScanStart(read.sweep_interval))


def _traits(provider: Provider) -> ProviderTraits:
    return ProviderTraits(provider.name, provider.can_look_up, provider.replay_window)


def policy(read: WorkerSettings, by_route: Mapping[str, Route]) -> RetryPolicy:
    """One for all routes: a name says which provider is meant."""
    return RetryPolicy(
        max_attempts=read.max_attempts,
        backoff=read.retry_backoff,
        unknown_budget=read.unknown_budget,
        unknown_backoff=read.unknown_backoff,
        evidence_window=read.evidence_window,
        providers=tuple(
            _traits(provider) for route in by_route.values() for provider in route.providers.values()
        ),
    )
