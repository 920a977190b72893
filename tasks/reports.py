"""What a provider in this process says of the mail it took, on its way to where webhooks go."""

from __future__ import annotations

from db import ids, provider_events
from db.errors import DatabaseUnavailable
from db.leases import Lease
from db.logs import get_logger
from db.provider_events import Event
from db.session import Database
from tasks.providers.base import Provider, Reports

log = get_logger(__name__)


def record_reports(database: Database, provider: Provider, lease: Lease) -> None:
    """Record them, after the settle that accepted the mail. Without the database they are lost, as a webhook may be."""
    if not isinstance(provider, Reports):
        return
    for report in provider.reports(ids.public("dlv", lease.delivery_id), lease.recipient):
        try:
            provider_events.record(
                database, Event(provider.name, report.event_id, lease.delivery_id, report.kind)
            )
        except DatabaseUnavailable as error:
            log.warning("report_lost", provider=provider.name, reason=type(error).__name__)
        except Exception:  # the mail is accepted and settled, and others wait
            log.exception("report_raised", provider=provider.name, alert=True)
